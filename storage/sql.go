package storage

// sqliteConns is how many connections SQLite has: one writer at a time, with readers
// beside it. More would only wait.
const sqliteConns = 8

// sqliteOptions are given to every connection, before those of the URL.
//
//   - busy_timeout: how long opening waits for another process, in milliseconds.
//     Statements wait as long as their context lasts: see sqliteConnector.
//   - _txlock=immediate: a transaction locks the file when it begins. One that
//     read first and wrote later would fail at once, whatever the timeout, when
//     another had written in between.
//   - WAL with synchronous=NORMAL: readers and the writer do not wait for each
//     other. A crash of the machine may lose the last commits but corrupts
//     nothing; a crash of the process loses nothing.
//   - UTC in one format: SQLite stores and compares times as text.
const sqliteOptions = "_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)" +
	"&_pragma=foreign_keys(1)&_txlock=immediate&_time_format=sqlite&_timezone=UTC"

// sqliteDSN is the data source name of a file whose path is escaped as in a URL.
func sqliteDSN(escapedPath, query string) string {
	dsn := "file:" + escapedPath + "?" + sqliteOptions
	if query != "" {
		dsn += "&" + query
	}
	return dsn
}
