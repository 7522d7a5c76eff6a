// The README's example is the same as test/example.ts, which is compiled.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'

test('the example of the README is what compiles here', () => {
  const text = (name: string) => readFileSync(new URL(`../../${name}`, import.meta.url), 'utf8')
  const [, example] = /```ts\n(.*?)```/s.exec(text('README.md'))!
  assert.equal(text('test/example.ts').split('\n').slice(1).join('\n').replace('../src/index.js', '@tideline/client'), example)
})
