package browsertest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// patience is how long a page may take to show what it is expected to show.
const patience = 15 * time.Second

// chromium is a running browser, spoken to in its DevTools protocol.
type chromium struct {
	cmd  *exec.Cmd
	conn *websocket.Conn

	mu      sync.Mutex // guards all below, and writing to conn
	last    int
	answers map[int]chan answer
	pages   map[string]*page // by session
}

type answer struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

// findChromium is the path of the browser, "" when there is none.
func findChromium() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// launch starts a browser that keeps everything in dir.
func launch(path, dir string) (*chromium, error) {
	c := &chromium{answers: map[int]chan answer{}, pages: map[string]*page{}}
	c.cmd = exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
		"--lang=en-US", "--remote-debugging-port=0", "--user-data-dir="+dir, "about:blank")
	stderr, err := c.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start Chromium: %w", err)
	}
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		_, address, found := strings.Cut(lines.Text(), "DevTools listening on ")
		if !found {
			continue
		}
		if c.conn, _, err = websocket.DefaultDialer.Dial(address, nil); err != nil {
			return nil, fmt.Errorf("connect to Chromium: %w", err)
		}
		go func() {
			for lines.Scan() { // it must not wait for somebody to read what it complains of
			}
		}()
		go c.read()
		return c, nil
	}
	return nil, fmt.Errorf("Chromium ended before it was ready: %w", c.cmd.Wait())
}

func (c *chromium) close() {
	_ = c.conn.Close()
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

func (c *chromium) read() {
	for {
		var message struct {
			ID        int
			SessionID string
			Method    string
			Params    json.RawMessage
			answer
		}
		err := c.conn.ReadJSON(&message)
		c.mu.Lock()
		switch {
		case err != nil:
			for _, waiting := range c.answers {
				waiting <- answer{Error: &struct{ Message string }{err.Error()}}
			}
			c.answers = nil
			c.mu.Unlock()
			return
		case message.ID != 0:
			c.answers[message.ID] <- message.answer
			delete(c.answers, message.ID)
		default:
			if p := c.pages[message.SessionID]; p != nil {
				p.hear(message.Method, message.Params)
			}
		}
		c.mu.Unlock()
	}
}

// call runs a method of the protocol, in a page's session or "" for the browser.
func (c *chromium) call(session, method string, params, result any) error {
	waiting := make(chan answer, 1)
	c.mu.Lock()
	if c.answers == nil {
		c.mu.Unlock()
		return fmt.Errorf("%s: the browser is gone", method)
	}
	c.last++
	c.answers[c.last] = waiting
	message := map[string]any{"id": c.last, "method": method, "params": params}
	if session != "" {
		message["sessionId"] = session
	}
	err := c.conn.WriteJSON(message)
	c.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	a := <-waiting
	if a.Error != nil {
		return fmt.Errorf("%s: %s", method, a.Error.Message)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(a.Result, result)
}

// page is one person's browser: storage, cookies and network of its own.
type page struct {
	t       *testing.T
	c       *chromium
	session string
	site    string // the host that alone may be asked

	// What was heard, under c.mu.
	complaints []string // exceptions, errors and warnings of the console
	failures   []string // requests that failed, as the console tells
	strangers  []string // addresses on other hosts
}

// open opens a browser of somebody's own on the site. When the test ends, the
// page must not have complained, nor asked another host for anything.
func open(t *testing.T, site string) *page {
	t.Helper()
	c := browser(t)
	u, err := url.Parse(site)
	require.NoError(t, err)
	var person struct{ BrowserContextID string }
	require.NoError(t, c.call("", "Target.createBrowserContext", nil, &person))
	var target struct{ TargetID string }
	require.NoError(t, c.call("", "Target.createTarget",
		map[string]any{"url": "about:blank", "browserContextId": person.BrowserContextID}, &target))
	var attached struct{ SessionID string }
	require.NoError(t, c.call("", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached))
	p := &page{t: t, c: c, session: attached.SessionID, site: u.Host}
	c.mu.Lock()
	c.pages[p.session] = p
	c.mu.Unlock()
	t.Cleanup(func() {
		assert.NoError(t, c.call("", "Target.disposeBrowserContext", map[string]any{"browserContextId": person.BrowserContextID}, nil))
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.pages, p.session)
		assert.Empty(t, p.complaints, "the page complains on the console")
		assert.Empty(t, p.failures, "requests fail")
		assert.Empty(t, p.strangers, "the page asks other hosts")
	})
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		p.do(domain+".enable", nil)
	}
	p.size(1280, 900, false)
	p.visit(site)
	return p
}

func (p *page) hear(method string, params json.RawMessage) {
	var event struct {
		Type             string
		Args             []struct{ Value, Description any }
		ExceptionDetails struct{ Exception struct{ Description string } }
		Entry            struct{ Level, Source, Text, URL string }
		Request          struct{ URL string }
		URL              string
	}
	if err := json.Unmarshal(params, &event); err != nil {
		p.complaints = append(p.complaints, err.Error())
		return
	}
	switch method {
	case "Runtime.exceptionThrown":
		p.complaints = append(p.complaints, event.ExceptionDetails.Exception.Description)
	case "Runtime.consoleAPICalled":
		if event.Type == "error" || event.Type == "warning" {
			p.complaints = append(p.complaints, fmt.Sprint(event.Args))
		}
	case "Log.entryAdded":
		if e := event.Entry; e.Source == "network" {
			p.failures = append(p.failures, e.Text+" "+e.URL)
		} else if e.Level == "error" || e.Level == "warning" {
			p.complaints = append(p.complaints, e.Text)
		}
	case "Network.requestWillBeSent", "Network.webSocketCreated":
		address := event.Request.URL + event.URL
		if u, err := url.Parse(address); err != nil || u.Host != p.site {
			p.strangers = append(p.strangers, address)
		}
	}
}

// forgive forgets the requests that failed until now: the server was away.
func (p *page) forgive() {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.failures = nil
}

func (p *page) do(method string, params map[string]any) {
	p.t.Helper()
	require.NoError(p.t, p.c.call(p.session, method, params, nil))
}

func (p *page) visit(address string) {
	p.t.Helper()
	p.do("Page.navigate", map[string]any{"url": address})
	p.see(`document.readyState === 'complete' && document.querySelector('main') !== null`)
}

func (p *page) size(width, height int, phone bool) {
	p.t.Helper()
	p.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone})
}

func (p *page) offline(off bool) {
	p.t.Helper()
	p.do("Network.emulateNetworkConditions", map[string]any{"offline": off, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1})
}

// eval is the value of a JavaScript expression in the page; it may be a promise.
func (p *page) eval(expression string) (any, error) {
	var result struct {
		Result           struct{ Value any }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	err := p.c.call(p.session, "Runtime.evaluate",
		map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &result)
	if err == nil && result.ExceptionDetails != nil {
		err = fmt.Errorf("%s: %s", expression, result.ExceptionDetails.Exception.Description)
	}
	return result.Result.Value, err
}

// value is eval that must succeed.
func (p *page) value(expression string) any {
	p.t.Helper()
	v, err := p.eval(expression)
	require.NoError(p.t, err)
	return v
}

// see waits until the expression is true.
func (p *page) see(expression string) {
	p.t.Helper()
	var last any
	ok := assert.Eventually(p.t, func() bool {
		// While the page is being replaced there is nothing to evaluate in.
		last, _ = p.eval(expression)
		return last == true
	}, patience, 20*time.Millisecond)
	if !ok {
		text, _ := p.eval(`document.body.innerText`)
		require.FailNow(p.t, "never seen", "%s (is %v) on:\n%v", expression, last, text)
	}
}

// js is a Go value as JavaScript writes it.
func js(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// named is the expression for the visible control that a screen reader would
// call by this name, or by one that begins so; in the dialog, if one is open.
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

// click clicks, as a mouse does, on the control with this name.
func (p *page) click(name string) {
	p.t.Helper()
	p.clickOn(named(name))
}

// clickOn clicks on the element that the expression finds.
func (p *page) clickOn(expression string) {
	p.t.Helper()
	p.see(`(` + expression + `) != null`)
	at := p.value(`(async () => {
		const e = ` + expression + `
		e.scrollIntoView({ block: 'nearest', behavior: 'instant' })
		await new Promise(requestAnimationFrame)
		const { x, y, width, height } = e.getBoundingClientRect()
		return [x + width / 2, y + height / 2]
	})()`).([]any)
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		p.do("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": at[0], "y": at[1], "button": "left", "clickCount": 1})
	}
}

// fill clicks into the field with this name and types.
func (p *page) fill(name, text string) {
	p.t.Helper()
	p.fillIn(named(name), text)
}

// fillIn is fill for the field that the expression finds.
func (p *page) fillIn(expression, text string) {
	p.t.Helper()
	p.clickOn(expression)
	p.see(`document.activeElement === ` + expression)
	p.write(text)
}

// write types into whatever has the focus.
func (p *page) write(text string) {
	p.t.Helper()
	p.do("Input.insertText", map[string]any{"text": text})
}

const ctrl = 2

// key presses one key.
func (p *page) key(key string, modifiers ...int) {
	p.t.Helper()
	codes := map[string]int{"Tab": 9, "Enter": 13, "Escape": 27, "ArrowDown": 40, " ": 32, "Home": 36}
	event := map[string]any{"key": key, "code": key, "windowsVirtualKeyCode": codes[key], "modifiers": 0}
	for _, m := range modifiers {
		event["modifiers"] = m
	}
	switch {
	case key == "Enter":
		event["text"] = "\r"
	case len(key) == 1:
		event["text"] = key
	}
	for _, kind := range []string{"keyDown", "keyUp"} {
		event["type"] = kind
		p.do("Input.dispatchKeyEvent", event)
	}
}

// tabTo presses Tab until the control with this name has the focus.
func (p *page) tabTo(name string) {
	p.t.Helper()
	for range 60 {
		if p.value(`document.activeElement === `+named(name)) == true {
			return
		}
		p.key("Tab")
	}
	require.FailNow(p.t, "not reachable by Tab", name)
}

var shared struct {
	once sync.Once
	*chromium
	err error
}

// browser is the one Chromium of all tests; it skips the test when none is
// installed, unless everything real is required.
func browser(t *testing.T) *chromium {
	t.Helper()
	path := findChromium()
	if path == "" {
		const missing = "no Chromium in PATH: the app is NOT tested in a browser"
		require.Empty(t, os.Getenv("TIDELINE_TEST_REQUIRE_REAL"), missing)
		t.Skip(missing)
	}
	shared.once.Do(func() { shared.chromium, shared.err = launch(path, profile) })
	require.NoError(t, shared.err)
	return shared.chromium
}
