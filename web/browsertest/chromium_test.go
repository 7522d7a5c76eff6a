package browsertest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
	"tideline/web"
)

// patience is the time that a page has to show what a test expects.
const patience = 30 * time.Second

// chromium is the browser process that all tests share, with a window for each user.
var chromium = struct {
	context.Context
	stop func()
	err  error // of the start
}{stop: func() {}}

var start sync.Once

// browser starts Chromium, unless it runs. If none is installed, the test is skipped, or fails if
// TIDELINE_TEST_REQUIRE_REAL is 1.
func browser(t *testing.T) {
	t.Helper()
	path := storagetest.Chromium(t)
	start.Do(func() {
		options := append(chromedp.DefaultExecAllocatorOptions[:],
			chromedp.ExecPath(path),
			chromedp.NoSandbox, // the page is trusted, and root has no sandbox
			chromedp.DisableGPU,
			chromedp.Flag("disable-component-update", true),
			chromedp.Flag("lang", "en-US"),
			// A busy machine needs more time.
			chromedp.WSURLReadTimeout(2*patience),
		)
		allocator, free := chromedp.NewExecAllocator(context.Background(), options...)
		ctx, stop := chromedp.NewContext(allocator)
		chromium.Context = ctx //nolint:fatcontext // made once
		chromium.stop = func() { stop(); free() }
		chromium.err = chromedp.Do(ctx)
	})
	require.NoError(t, chromium.err)
}

// page is the browser of one user, with its own storage, cookies and network.
type page struct {
	t    *testing.T
	ctx  context.Context
	site string // the only host to which the page may send requests

	mu         sync.Mutex
	complaints []string // exceptions, errors and warnings on the console
	failures   []string // failed requests, as the console reports them
	documents  []string // the addresses that were loaded: not everybody may see what is there, so their status may be 404
	strangers  []string // addresses on other hosts
	untrusted  []string // documents that the app sent and web.Documents lacks
	explorer   bool     // the page showed GraphiQL, which sends any document
}

// open opens a new browser on the site. When the test ends, it fails the test if the page logged an
// error, had a failed request, sent a request to another host, or sent a document that
// web.Documents lacks.
func open(t *testing.T, site string, before ...chromedp.Action[chromedp.Void]) *page {
	t.Helper()
	browser(t)
	u, err := url.Parse(site)
	require.NoError(t, err)
	ctx, _ := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext())
	p := &page{t: t, ctx: ctx, site: u.Host}
	t.Cleanup(func() {
		assert.NoError(t, chromedp.Cancel(ctx))
		p.mu.Lock()
		defer p.mu.Unlock()
		assert.Empty(t, p.complaints, "the page complains on the console")
		assert.Empty(t, p.failures, "requests fail")
		assert.Empty(t, p.strangers, "the page asks other hosts")
		assert.Empty(t, p.untrusted, "the app sends what its list of documents lacks")
	})
	require.NoError(t, chromedp.Listen(ctx, p.hear))
	// Every page behaves as if its window had the focus.
	p.call(emulation.SetFocusEmulationEnabled.Method, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	p.size(1280, 900, false)
	p.do(before...)
	p.visit(site)
	return p
}

func (p *page) hear(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		p.complaints = append(p.complaints, (&chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails}).Error())
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			for _, arg := range e.Args {
				p.complaints = append(p.complaints, arg.Description+string(arg.Value))
			}
		}
	case *log.EventEntryAdded:
		switch entry := e.Entry; {
		case entry.Source == log.EntrySourceNetwork && strings.Contains(entry.Text, "404") && slices.Contains(p.documents, entry.URL):
		case entry.Source == log.EntrySourceNetwork:
			p.failures = append(p.failures, entry.Text+" "+entry.URL)
		case entry.Level == log.EntryLevelError || entry.Level == log.EntryLevelWarning:
			p.complaints = append(p.complaints, entry.Text)
		}
	case *network.EventRequestWillBeSent:
		p.ask(e.Request.URL)
		if e.Type == network.ResourceTypeDocument {
			p.documents = append(p.documents, e.Request.URL)
		}
		p.explorer = p.explorer || strings.Contains(e.DocumentURL, "/graphiql")
		if body := e.Request.PostDataEntries; len(body) == 1 && strings.HasSuffix(e.Request.URL, "/graphql") {
			var request struct{ Query string }
			_ = json.Unmarshal(body[0].Bytes, &request)
			p.sent(request.Query)
		}
	case *network.EventWebSocketCreated:
		p.ask(e.URL)
	case *network.EventWebSocketFrameSent:
		var message struct {
			Type    string
			Payload struct{ Query string }
		}
		if _ = json.Unmarshal(e.Response.PayloadData, &message); message.Type == "subscribe" {
			p.sent(message.Payload.Query)
		}
	}
}

// sent records a document that web.Documents lacks. It ignores documents without a name, which
// tests send from a page.
func (p *page) sent(document string) {
	ofTest := strings.HasPrefix(document, "{")
	if !ofTest && !p.explorer && !slices.Contains(slices.Collect(maps.Values(web.Documents())), document) {
		p.untrusted = append(p.untrusted, document)
	}
}

func (p *page) ask(address string) {
	if u, err := url.Parse(address); err != nil || u.Host != p.site && u.Scheme != "data" && u.Scheme != "blob" {
		p.strangers = append(p.strangers, address)
	}
}

// forgive clears the failed requests recorded so far, for a test that expects them. It also clears
// Chromium's message about data that a client sent while its socket was closing.
func (p *page) forgive() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failures = nil
	p.complaints = slices.DeleteFunc(p.complaints, func(c string) bool {
		return strings.Contains(c, "WebSocket is already in CLOSING or CLOSED state")
	})
}

func (p *page) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	require.NoError(p.t, chromedp.Do(p.ctx, steps...))
}

// call runs a method of the DevTools protocol that has no result.
func (p *page) call(method string, params any) {
	p.t.Helper()
	p.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error { return target.Call(ctx, method, params, nil) }))
}

func (p *page) visit(address string) {
	p.t.Helper()
	p.do(chromedp.Navigate(address))
	p.see(`document.querySelector('main, #graphiql') !== null`)
}

func (p *page) reload() {
	p.t.Helper()
	p.do(chromedp.Reload())
}

func (p *page) size(width, height int64, phone bool) {
	p.t.Helper()
	options := []chromedp.EmulateViewportOption{}
	if phone {
		options = append(options, chromedp.EmulateMobile)
	}
	p.do(chromedp.EmulateViewport(width, height, options...))
}

// speaks sets the language that the browser asks for.
func speaks(language string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		agent, err := chromedp.Evaluate[string](`navigator.userAgent`)(ctx, target)
		if err != nil {
			return err
		}
		return target.Call(ctx, emulation.SetUserAgentOverride.Method,
			emulation.SetUserAgentOverrideParams{UserAgent: agent, AcceptLanguage: language}, nil)
	})
}

func (p *page) offline(off bool) {
	p.t.Helper()
	p.call("Network.emulateNetworkConditions",
		map[string]any{"offline": off, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1})
}

// value returns the value of a JavaScript expression in the page. It awaits a promise.
func (p *page) value(expression string) any {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[any](expression, chromedp.EvalAwaitPromise))
	require.NoError(p.t, err, expression)
	return v
}

// see waits until the expression is true. The page itself checks it every 10 milliseconds, so a
// wait costs next to nothing.
func (p *page) see(expression string) {
	p.t.Helper()
	look := fmt.Sprintf(`new Promise((tell) => {
		const until = performance.now() + 1000
		const look = async () => {
			let value
			try { value = await (%s) } catch (error) { value = error }
			if (value === true || performance.now() > until) tell(String(value))
			else setTimeout(look, 10)
		}
		look()
	})`, expression)
	var last string
	for start := time.Now(); time.Since(start) < patience; time.Sleep(10 * time.Millisecond) {
		// Fails while the page is being replaced, because there is no context for the expression.
		ctx, cancel := context.WithTimeout(p.ctx, patience)
		value, err := chromedp.Run(ctx, chromedp.Evaluate[string](look, chromedp.EvalAwaitPromise))
		cancel()
		switch {
		case err != nil:
			last = err.Error()
		case value == "true":
			return
		default:
			last = value
		}
	}
	if *screenshots != "" {
		p.picture(filepath.Join(*screenshots, "never-seen-"+filepath.Base(p.t.Name())+".png"), 1280, 900)
	}
	text, _ := chromedp.Run(p.ctx, chromedp.Evaluate[string](`document.body.innerText`))
	require.FailNow(p.t, "never seen", "%s (is %v) on:\n%v", expression, last, text)
}

// js returns a Go value as JavaScript.
func js(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// named returns an expression for the visible control with this accessible name, or else for the first
// one whose name begins with it. If a dialog is open, it looks only there.
func named(name string) string {
	return fmt.Sprintf(`((name) => {
		const within = document.querySelector('dialog[open]') ?? document
		const nameOf = (e) => e.ariaLabel ?? (e.labels?.[0] ?? e).textContent.trim()
		const seen = [...within.querySelectorAll('button, a, summary, input, textarea, select')].filter((e) => e.checkVisibility())
		return seen.find((e) => nameOf(e) === name) ?? seen.find((e) => nameOf(e).startsWith(name))
	})(%s)`, js(name))
}

func (p *page) sees(text string) {
	p.t.Helper()
	p.see(fmt.Sprintf(`document.body.innerText.includes(%s)`, js(text)))
}

func (p *page) seesNot(text string) {
	p.t.Helper()
	p.see(fmt.Sprintf(`!document.body.innerText.includes(%s)`, js(text)))
}

// click clicks with the mouse on the control with this name.
func (p *page) click(name string) {
	p.t.Helper()
	p.clickOn(named(name))
}

// clickOn waits for the element that the expression returns, and clicks on it with the mouse. It waits
// while the element is disabled. If the page draws the element again meanwhile, clickOn waits for the new one.
func (p *page) clickOn(expression string) {
	p.t.Helper()
	var at []any
	for len(at) == 0 {
		p.see(`((e) => e != null && !e.disabled)(` + expression + `)`)
		at = p.value(`(async () => {
			const e = ` + expression + `
			e?.scrollIntoView({ block: 'nearest', behavior: 'instant' })
			await new Promise(requestAnimationFrame)
			if (!e?.isConnected || e.disabled) return []
			const { x, y, width, height } = e.getBoundingClientRect()
			return [x + width / 2, y + height / 2]
		})()`).([]any)
	}
	p.do(chromedp.MouseClickXY(at[0].(float64), at[1].(float64)))
}

// fill clicks into the field with this name and types the text.
func (p *page) fill(name, text string) {
	p.t.Helper()
	p.fillIn(named(name), text)
}

// fillIn clicks into the field that the expression returns and types the text.
func (p *page) fillIn(expression, text string) {
	p.t.Helper()
	p.clickOn(expression)
	p.see(`document.activeElement === ` + expression)
	p.write(text)
}

// write types the text into the element that has the focus.
func (p *page) write(text string) {
	p.t.Helper()
	p.call(input.InsertText.Method, input.InsertTextParams{Text: text})
}

// key presses keys one after the other, each a rune as package kb defines it. The keydown event
// carries the text of the key, as with a keyboard, so a page that uses the key as a shortcut
// can prevent the text.
func (p *page) key(keys string, modifiers ...chromedp.Modifier) {
	p.t.Helper()
	for _, key := range keys {
		press := *kb.Encode(key)[0]
		for _, m := range modifiers {
			press.Modifiers |= int64(m)
		}
		if known := kb.Keys[key]; known.Print && len(modifiers) == 0 {
			press.Text = known.Text
		}
		p.call(input.DispatchKeyEvent.Method, press)
		press.Type, press.Text = kb.KeyUp, ""
		p.call(input.DispatchKeyEvent.Method, press)
	}
}

// tabTo presses Tab until the control with this name has the focus.
func (p *page) tabTo(name string) {
	p.t.Helper()
	for range 60 {
		if p.value(`document.activeElement === `+named(name)) == true {
			return
		}
		p.key(kb.Tab)
	}
	require.FailNow(p.t, "not reachable by Tab", name)
}
