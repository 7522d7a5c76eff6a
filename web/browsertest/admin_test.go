package browsertest

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // the driver for the site's database, to which the test writes

	"tideline/storage/storagetest"
)

// seesIn waits until the region with this name on the admin page contains the text.
func (p *page) seesIn(region, text string) {
	p.t.Helper()
	p.see(fmt.Sprintf(`document.querySelector('[aria-label=' + CSS.escape(%s) + ']')?.innerText.includes(%s) === true`, js(region), js(text)))
}

// An admin logs in, sees the processes and the queue, retries and discards jobs, pauses the
// workers, and looks up a post and a timeline.
func TestAdminPage(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	s := prepare(t)
	s.admin = "http://" + storagetest.FreeAddress(t)
	s.start()
	ada, bob := s.signUp("ada"), s.signUp("bob")
	out, err := s.command("users", "role", "ada", "admin").CombinedOutput()
	require.NoError(t, err, string(out))
	ada.must(`{ timeline { unreadCount } }`, nil, nil) // makes the user active, so that posts are delivered
	ada.relate("follow", bob)
	post := bob.post("The tide is out, and nobody is to read this in the admin page")

	// Three jobs that were given up.
	db, err := sql.Open("sqlite", "file:"+filepath.Join(s.data, "tideline.db")+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	defer db.Close()
	now := time.Now().UTC()
	for range 3 {
		_, err = db.ExecContext(t.Context(), `INSERT INTO jobs (kind, pool, payload, attempts, last_error, dead, due_at, created_at) VALUES ('post.created', 'small', ?, 12, 'the disk is full', true, ?, ?)`,
			`{"post":1,"author":1}`, now, now)
		require.NoError(t, err)
	}

	p := open(t, s.admin)
	p.see(`document.title === 'Admin · Tideline'`)
	script := accessibility(t)
	looked := func(name string) {
		t.Helper()
		p.looks("admin-"+name, script, "en")
		p.size(1280, 900, false)
	}
	looked("log-in")
	p.fill("Handle", "bob")
	p.fill("Password", password)
	p.click("Log in")
	p.sees("This takes the role ADMIN.")
	p.forgive() // the answer is 403
	p.fillIn(`document.querySelector('[name=handle]')`, "")
	p.value(`document.querySelector('[name=handle]').value = ''`)
	p.fill("Handle", "ada")
	p.click("Log in")

	p.see(`document.querySelector('.sign')?.dataset.status === 'live'`)
	p.seesIn("Processes", "running")
	p.seesIn("Processes", "server, workers")
	p.seesIn("Queue", "relations")
	p.seesIn("Stores", "SQLite")
	p.seesIn("Stores", "inside the process")
	p.seesIn("Jobs given up", "the disk is full")
	looked("desk")

	p.click("Try again: ")
	p.sees("One job is tried again.")
	p.see(`document.querySelectorAll('[aria-label="Jobs given up"] tbody tr').length === 2`)
	p.click("Discard: ")
	p.sees("Its row is deleted")
	looked("discard")
	p.click("Discard")
	p.sees("The job is discarded.")
	p.see(`document.querySelectorAll('[aria-label="Jobs given up"] tbody tr').length === 1`)
	p.click("Try again: ")
	p.seesIn("Jobs given up", "No job was given up.")
	p.seesIn("Queue", "No job is outstanding.") // the post of the jobs does not exist, so they finish at once

	p.click("Pause ")
	p.sees("They finish the jobs under way")
	looked("pause")
	p.click("Pause")
	p.seesIn("Processes", "paused")
	p.click("Resume ")
	p.seesIn("Processes", "running")

	p.fill("Post", "what")
	p.click("Look")
	p.sees("This is not the id of a post")
	p.value(`document.querySelector('[name=id]').value = ''`)
	p.fill("Post", post)
	p.fill("Viewer", "ada")
	p.click("Look")
	p.seesIn("The journey of a post", "@bob")
	p.seesIn("The journey of a post", "It is shown")
	p.seesIn("What rankings make of it", "log10(max(likes, 1))")
	p.seesIn("The journey of a post", "done: ")
	p.seesNot("The tide is out")

	p.fill("User", "ada")
	p.click("Inspect")
	p.seesIn("A timeline", "@ada (")
	p.click("Rebuild")
	p.sees("The inbox in Redis is dropped and made anew")
	p.click("Rebuild")
	p.sees("Rebuilt.")
	p.seesIn("A timeline", "ready")
	p.click("Compare with SQL")
	p.sees("Agrees with SQL; entries compared: 1.")
	looked("looks")
	assert.Equal(t, "RETRY_JOBS,DISCARD_JOBS,RETRY_JOBS,PAUSE_WORKERS,RESUME_WORKERS,REBUILD_TIMELINE", auditLog(t, db))

	p.choose(`document.querySelector('header select')`, "zh")
	p.seesIn("进程", "运行中")
	p.size(390, 844, true)
	assert.LessOrEqual(t, p.value(`document.documentElement.scrollWidth`), p.value(`innerWidth`))
	if *screenshots != "" {
		p.picture(filepath.Join(*screenshots, "admin-phone-light-zh.png"), 390, 844)
	}
	p.size(1280, 900, false)
	p.reload()
	p.see(`document.querySelector('.sign')?.dataset.status === 'live'`) // the tab keeps the session
	p.click("退出")
	p.sees("仅限角色为 ADMIN 的用户")
	p.see(`sessionStorage.length === 0`)
	p.forgive() // one answer is 400, and the log-out closes the stream
}

// auditLog returns the actions of users from the audit log, oldest first, separated by commas.
func auditLog(t *testing.T, db *sql.DB) (actions string) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(),
		`SELECT group_concat(action, ',') FROM (SELECT action FROM audit_entries WHERE actor_id <> 0 ORDER BY id)`).Scan(&actions))
	return actions
}
