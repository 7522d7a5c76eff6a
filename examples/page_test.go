package examples

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
)

var screenshots = flag.String("screenshots", "", "write pictures of the app's page to this folder")

// window is a browser of one user that shows the app's page.
type window struct {
	t   *testing.T
	ctx context.Context
}

// see waits until the JavaScript expression is true on the page.
func (w window) see(expression string) {
	w.t.Helper()
	look := fmt.Sprintf(`new Promise((tell) => { const look = () => (%s) ? tell(true) : setTimeout(look, 10); look() })`, expression)
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	_, err := chromedp.Run(ctx, chromedp.Evaluate[bool](look, chromedp.EvalAwaitPromise))
	if err != nil {
		text, _ := chromedp.Run(w.ctx, chromedp.Evaluate[string](`document.body.innerText`))
		require.NoError(w.t, err, "waiting for %s on:\n%s", expression, text)
	}
}

// shows waits until the timeline has exactly these posts.
func (w window) shows(texts string) {
	w.t.Helper()
	w.see(fmt.Sprintf(`[...document.querySelectorAll('#posts .text')].map((e) => e.textContent).join() === %q`, texts))
}

func (w window) fill(id, text string) {
	w.t.Helper()
	_, err := chromedp.Run(w.ctx, chromedp.Evaluate[any](fmt.Sprintf(`document.getElementById(%q).value = %q`, id, text)))
	require.NoError(w.t, err)
}

// press waits until the button with this text is enabled, and presses it.
func (w window) press(text string) {
	w.t.Helper()
	w.see(fmt.Sprintf(`(() => {
		const button = [...document.querySelectorAll('button')].find((b) => b.textContent === %q && b.checkVisibility() && !b.disabled)
		button?.click()
		return button })()`, text))
}

func (w window) picture(name string, width, height int64) {
	if *screenshots == "" {
		return
	}
	w.t.Helper()
	require.NoError(w.t, chromedp.Do(w.ctx, chromedp.EmulateViewport(width, height)))
	image, err := chromedp.Run(w.ctx, chromedp.CaptureScreenshot())
	require.NoError(w.t, err)
	require.NoError(w.t, os.WriteFile(filepath.Join(*screenshots, name+".png"), image, 0o600))
}

// lookAtPage plays two users on the app's page in Chromium.
func lookAtPage(t *testing.T, app string) {
	allocator, free := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(storagetest.Chromium(t)),
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("lang", "en-US"), chromedp.WSURLReadTimeout(2*patience))...)
	defer free()
	browser, stop := chromedp.NewContext(allocator)
	defer stop()
	require.NoError(t, chromedp.Do(browser))
	enter := func(name string) window {
		ctx, _ := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
		require.NoError(t, chromedp.Listen(ctx, func(event any) {
			switch e := event.(type) {
			case *runtime.EventExceptionThrown:
				assert.Fail(t, "the page throws", "%v", (&chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails}).Error())
			case *log.EventEntryAdded:
				assert.Contains(t, e.Entry.Text, "401", "the page complains") // logged while nobody is signed in
			}
		}))
		require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(app)))
		w := window{t, ctx}
		w.see(`document.getElementById('outside').checkVisibility()`)
		w.picture("sign-in", 1000, 700)
		w.fill("name", name)
		w.press("Sign in")
		w.see(`document.getElementById('status').textContent === 'Live'`)
		return w
	}
	cleo, dan := enter("Cleo"), enter("Dan")
	dan.see(`document.getElementById('empty').checkVisibility()`)
	dan.picture("empty", 1000, 700)
	_, err := chromedp.Run(dan.ctx, chromedp.Evaluate[any](
		`[...document.querySelectorAll('#people button')].find((b) => b.ariaLabel === 'Follow Cleo').click()`))
	require.NoError(t, err)
	dan.see(`[...document.querySelectorAll('#people button')].some((b) => b.ariaLabel === 'Unfollow Cleo')`)
	dan.see(`document.getElementById('status').textContent === 'Live'`)
	cleo.fill("text", "Spring tide")
	cleo.press("Post")
	cleo.shows("Spring tide")
	dan.shows("Spring tide")
	dan.fill("text", "Neap tide")
	dan.press("Post")
	dan.shows("Neap tide,Spring tide")
	dan.picture("timeline", 1000, 700)
	cleo.press("Delete my account")
	cleo.picture("delete", 1000, 700)
	cleo.press("Delete it")
	cleo.see(`document.getElementById('outside').checkVisibility()`)
	dan.shows("Neap tide")
	dan.see(`![...document.querySelectorAll('#people button')].some((b) => b.ariaLabel.endsWith('Cleo'))`)
	dan.picture("phone", 390, 844)
}
