package storage

// sqliteConns is the number of SQLite connections: one writer at a time, and readers beside it.
// More connections would only wait.
const sqliteConns = 8

// sqliteOptions apply to every connection, before the options of the URL.
//
//   - busy_timeout: how long opening waits for another process, in milliseconds. Statements wait as
//     long as their context allows: see sqliteConnector.
//   - _txlock=immediate: a transaction locks the file when it begins. A transaction that reads
//     first and writes later would fail at once if another had written in between, whatever the
//     timeout.
//   - WAL: readers and the writer do not wait for each other. Config.SQLiteSync controls when a
//     commit is answered.
//   - UTC in one format: SQLite stores and compares times as text.
const sqliteOptions = "_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)" +
	"&_pragma=foreign_keys(1)&_txlock=immediate&_time_format=sqlite&_timezone=UTC"

// The values of Config.SQLiteSync.
const (
	syncFull   = "full"
	syncNormal = "normal"
)

// sqliteDSN returns the data source name of a file whose path is escaped as in a URL.
func sqliteDSN(escapedPath, sync, query string) string {
	dsn := "file:" + escapedPath + "?" + sqliteOptions + "&_pragma=synchronous(" + sync + ")"
	if sync == syncFull {
		dsn += "&_pragma=fullfsync(1)" // for macOS, where fsync leaves data in the disk cache
	}
	if query != "" {
		dsn += "&" + query
	}
	return dsn
}
