// What a person wrote, with its links.
const linked = /\bhttps?:\/\/[^\s<>"“”«»（）【】、。，！？；：]+|(?<![\w@/.])@\w{1,30}(?![\w@])/g

/** Without what ends a sentence, or a pair of brackets around the address. */
function trim(address: string): string {
  const plain = address.replace(/[.,;:!?'*_~\]]+$/, '')
  return plain.endsWith(')') && !plain.includes('(') ? trim(plain.slice(0, -1)) : plain
}

/** A text whose web addresses and handles are links. */
export function Words({ text }: { text: string }) {
  const parts = []
  let end = 0
  for (const { 0: match, index } of text.matchAll(linked)) {
    const word = match[0] === '@' ? match : trim(match)
    parts.push(
      text.slice(end, index),
      match[0] === '@' ? (
        <a href={`/${word.toLowerCase()}`}>{word}</a>
      ) : (
        <a href={word} target="_blank" rel="nofollow ugc noopener noreferrer">
          {word}
        </a>
      ),
    )
    end = index + word.length
  }
  return (
    <>
      {parts}
      {text.slice(end)}
    </>
  )
}
