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
//   - WAL: readers and the writer do not wait for each other. How far a commit
//     must have come is Config.SQLiteSync.
//   - UTC in one format: SQLite stores and compares times as text.
const sqliteOptions = "_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)" +
	"&_pragma=foreign_keys(1)&_txlock=immediate&_time_format=sqlite&_timezone=UTC"

// The values of Config.SQLiteSync.
const (
	syncFull   = "full"
	syncNormal = "normal"
)

// sqliteDSN is the data source name of a file whose path is escaped as in a URL.
func sqliteDSN(escapedPath, sync, query string) string {
	dsn := "file:" + escapedPath + "?" + sqliteOptions + "&_pragma=synchronous(" + sync + ")"
	if sync == syncFull {
		dsn += "&_pragma=fullfsync(1)" // on macOS, where fsync leaves data in the disk's own memory
	}
	if query != "" {
		dsn += "&" + query
	}
	return dsn
}
