package browsertest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
)

// answer is an expression for the answer that GraphiQL shows, without white space.
const answer = `(document.querySelector('.graphiql-response')?.innerText ?? '').replaceAll(/\s/g, '')`

// editing is an expression for the text in GraphiQL's editor.
const editing = `document.querySelector('.graphiql-query-editor')?.innerText.replaceAll(/\s/g, ' ')`

// tab opens one of GraphiQL's tabs and waits for its text in the editor.
func (p *page) tab(name, text string) {
	p.t.Helper()
	p.clickOn(fmt.Sprintf(`[...document.querySelectorAll('.graphiql-tab-button')].find((e) => e.textContent === %s)`, js(name)))
	p.see(editing + `.includes(` + js(text) + `)`)
}

// run presses the run button. If operation is not "", it chooses that operation from the menu.
func (p *page) run(operation string) {
	p.t.Helper()
	// For a moment after a change of tabs the button still belongs to the previous tab.
	p.see(fmt.Sprintf(`(document.querySelector('.graphiql-execute-button').ariaHasPopup === 'menu') === %t`, operation != ""))
	p.clickOn(`document.querySelector('.graphiql-execute-button')`)
	if operation != "" {
		p.clickOn(fmt.Sprintf(`[...document.querySelectorAll('[role=menuitem]')].find((e) => e.textContent === %s)`, js(operation)))
	}
}

func (p *page) answers(text string) {
	p.t.Helper()
	p.see(answer + `.includes(` + js(text) + `)`)
}

// TestGraphiQL runs the ready-made tabs from left to right, as a new user of Tideline does.
func TestGraphiQL(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	s := serve(t)
	p := open(t, s.url+"/graphiql")
	p.see(`document.querySelectorAll('.graphiql-tab').length === 5`)
	p.see(editing + `?.includes('mutation SignUp')`)

	p.run("SignUp")
	p.answers(`"handle":"max"`)
	p.tab("Follow", "mutation Follow")
	p.run("")
	p.answers(`"following":true`)
	p.tab("Post", "mutation Post")
	p.run("")
	p.answers(`"text":"Thetideiscomingin."`)
	p.tab("Timeline", "query Timeline")
	p.run("")
	p.answers(`"text":"Thetideiscomingin."`)
	p.tab("Live", "subscription Live")
	p.run("")
	// connection_init carries Max's token, so Lin's posts arrive.
	p.see(`document.querySelector('.graphiql-execute-button').ariaLabel.startsWith('Stop')`)
	lin := &person{s: s, token: p.value(`JSON.parse(localStorage['tideline:graphiql:sessions']).lin.token`).(string)}
	p.see(`(await (await fetch('/metrics')).text()).match(/^tideline_live_\w*subscri\w+ 1$/m) !== null`)
	lin.post("Heard")
	p.answers(`"text":"Heard"`)
	p.run("")
	p.see(`document.querySelector('.graphiql-execute-button').ariaLabel.startsWith('Execute')`)

	// The history lists the operations that ran. The explorer lists the fields of the schema.
	p.clickOn(`document.querySelector('button[aria-label="Show History"]')`)
	p.see(`document.querySelectorAll('.graphiql-history-item').length >= 5`)
	p.clickOn(`document.querySelector('button[aria-label="Show GraphiQL Explorer"]')`)
	p.see(`document.querySelector('.graphiql-plugin').innerText.includes('timelineEvents')`)
	p.clickOn(`document.querySelector('button[aria-label="Show Documentation Explorer"]')`)
	p.see(`document.querySelector('.graphiql-plugin').innerText.includes('Subscription')`)

	// The tabs, the tokens and the history survive a reload.
	p.reload()
	p.see(editing + `?.includes('subscription Live')`)
	p.tab("Timeline", "query Timeline")
	p.run("")
	p.answers(`"text":"Heard"`)
	require.NotEmpty(t, p.value(`localStorage['graphiql:queries']`))
}
