package wire

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"
)

// words are the words of the posts of page.
var words = strings.Fields(`the of and a to in is you that it he was for on are as with his they I at be this have from or
one had by word but not what all were we when your can said there use an each which she do how their if will up other about
out many then them these so some her would make like him into time has look two more write go see number no way could people
my than first water been call who oil its now find long down day did get come made may part over tide morning photograph`)

// page returns the answer to a query of that many posts with their authors. Ids and cursors look like a
// feed's, and texts have 60 to 200 characters.
func page(posts int) string {
	r := rand.New(rand.NewPCG(1, 2))
	base64Of := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	var b strings.Builder
	b.WriteString(`{"data":{"timeline":{"edges":[`)
	for i := range posts {
		if i > 0 {
			b.WriteByte(',')
		}
		text := ""
		for n := 60 + r.IntN(140); len(text) < n; {
			text += words[r.IntN(len(words))] + " "
		}
		cursor := make([]byte, 40)
		for i := range cursor {
			cursor[i] = byte(r.Uint32())
		}
		author := r.IntN(30)
		fmt.Fprintf(&b, `{"cursor":%q,"node":{"id":%q,"text":%q,"createdAt":"2026-01-%02dT%02d:%02d:%02d.%03dZ","likeCount":%d,"viewerLiked":false,"visibility":"PUBLIC","author":{"id":%q,"handle":"author%d","name":"Author %d"}}}`,
			base64.RawURLEncoding.EncodeToString(cursor), base64Of(fmt.Sprintf("Post:%d", int64(4e15)+r.Int64N(1e12))), text,
			1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(1000), r.IntN(100),
			base64Of(fmt.Sprintf("User:%d", int64(4e15)+int64(author)*7919)), author, author)
	}
	b.WriteString(`],"pageInfo":{"hasNextPage":true}}}}`)
	return b.String()
}
