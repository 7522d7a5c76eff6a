package migration

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Lock is a PostgreSQL table lock mode.
type Lock string

// The locks that the statements of migrations take.
const (
	RowExclusive         Lock = "ROW EXCLUSIVE"
	ShareUpdateExclusive Lock = "SHARE UPDATE EXCLUSIVE"
	Share                Lock = "SHARE"
	ShareRowExclusive    Lock = "SHARE ROW EXCLUSIVE"
	AccessExclusive      Lock = "ACCESS EXCLUSIVE"
)

// strength orders the locks: a stronger lock blocks at least what a weaker one blocks.
var strength = []Lock{RowExclusive, ShareUpdateExclusive, Share, ShareRowExclusive, AccessExclusive}

// Blocks describes which statements wait while the lock is held.
func (l Lock) Blocks() string {
	switch l {
	case RowExclusive:
		return "writers of the same rows wait"
	case ShareUpdateExclusive:
		return "nobody waits; other changes of the table and VACUUM do"
	case Share, ShareRowExclusive:
		return "writers of the table wait, readers do not"
	case AccessExclusive:
		return "readers and writers of the table wait"
	}
	return "unknown"
}

// Span says how long a statement holds its lock.
type Span string

const (
	// Moment is some milliseconds, whatever the size of the table.
	Moment Span = "for a moment"
	// Rows lasts until the changed rows are written.
	Rows Span = "while it writes rows"
	// Scan lasts until the table is read.
	Scan Span = "while it reads the whole table"
	// Build lasts until an index is built: the table is read and sorted.
	Build Span = "while it builds the index"
	// Rewrite lasts until the table and its indexes are written anew.
	Rewrite Span = "while it writes the whole table anew"
	// Unknown is for statements that this package does not recognise.
	Unknown Span = "for a time that is not known: read the statement"
)

// Effect describes how a statement affects other statements that use a table.
type Effect struct {
	Table string // empty if the statement does not name it, such as tables that a dropped table refers to
	Lock  Lock
	For   Span
}

// String returns the effect as a sentence.
func (e Effect) String() string {
	return fmt.Sprintf("%s: %s %s; %s", cmp.Or(e.Table, "the tables concerned"), e.Lock, e.For, e.Lock.Blocks())
}

// Long reports whether other statements, all of them or those on the same rows, wait for more than
// a moment.
func (e Effect) Long() bool {
	return e.For == Unknown || e.Lock != ShareUpdateExclusive && e.For != Moment
}

const ident = "[\"`]?([a-z_][a-z0-9_]*)[\"`]?" // quoted as in either database, or unquoted

func pattern(p string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)` + strings.ReplaceAll(strings.ReplaceAll(p, "IDENT", ident), " ", `\s+`))
}

var (
	createTable   = pattern(`^CREATE TABLE (?:IF NOT EXISTS )?IDENT`)
	createIndex   = pattern(`^CREATE (UNIQUE )?INDEX (CONCURRENTLY )?(?:IF NOT EXISTS )?IDENT ON IDENT`)
	dropIndex     = pattern(`^DROP INDEX (CONCURRENTLY )?(IF EXISTS )?IDENT`)
	dropTable     = pattern(`^DROP TABLE (?:IF EXISTS )?IDENT`)
	alterTable    = pattern(`^ALTER TABLE (?:IF EXISTS )?(?:ONLY )?IDENT (.*)$`)
	writeRows     = pattern(`^(?:UPDATE|DELETE FROM|INSERT INTO) IDENT`)
	createTrigger = pattern(`^CREATE (?:OR REPLACE )?TRIGGER .* ON IDENT`)
	ofFunction    = pattern(`^(?:CREATE (?:OR REPLACE )?|DROP )FUNCTION `)
	references    = pattern(`REFERENCES IDENT`)
	truncate      = pattern(`^TRUNCATE (?:TABLE )?IDENT`)

	addColumn     = pattern(`^ADD (?:COLUMN )?`)
	constraint    = pattern(`^ADD (?:CONSTRAINT IDENT )?(FOREIGN KEY|CHECK|UNIQUE|PRIMARY KEY|EXCLUDE)\b`)
	notValid      = pattern(`NOT VALID$`)
	usingIndex    = pattern(`USING INDEX`)
	writtenAnew   = pattern(`\b(GENERATED|SERIAL|BIGSERIAL)\b|DEFAULT \(?(random|gen_random_uuid|clock_timestamp|nextval|timeofday)\(`)
	validate      = pattern(`^VALIDATE CONSTRAINT`)
	setNotNull    = pattern(`^ALTER (?:COLUMN )?IDENT SET NOT NULL`)
	changeType    = pattern(`^ALTER (?:COLUMN )?IDENT (?:SET DATA )?TYPE`)
	ofTheCatalog  = pattern(`^(DROP|RENAME|OWNER|ENABLE|DISABLE|SET SCHEMA|SET LOGGED|ALTER (?:COLUMN )?IDENT (SET DEFAULT|DROP DEFAULT|DROP NOT NULL))`)
	ofStatistics  = pattern(`^(SET \(|RESET \(|ALTER (?:COLUMN )?IDENT SET STATISTICS|CLUSTER ON)`)
	notNull       = pattern(`\bNOT NULL\b`)
	hasDefault    = pattern(`\bDEFAULT\b|\bGENERATED\b`)
	breaksOlder   = pattern(`^(DROP|RENAME|SET SCHEMA)`)
	whatOlderLack = pattern(`^DROP (TABLE|INDEX|VIEW|FUNCTION|TYPE|SEQUENCE)`)
)

// judge computes the effects of all statements in order. Tables that the migration itself creates
// do not count, because nothing else uses them yet. indexes maps the indexes of earlier migrations
// to their tables, and judge adds the new ones, because DROP INDEX names no table.
func (m *Migration) judge(indexes map[string]string) {
	var created []string
	for i := range m.Statements {
		s := &m.Statements[i]
		if made := createTable.FindStringSubmatch(s.SQL); made != nil {
			created = append(created, made[1])
		}
		if made := createIndex.FindStringSubmatch(s.SQL); made != nil {
			indexes[made[3]] = made[4]
		}
		s.Effects = effects(s.SQL, func(index string) string { return indexes[index] })
		if m.Transaction { // otherwise other sessions see the table before the next statement
			s.Effects = slices.DeleteFunc(s.Effects, func(e Effect) bool { return slices.Contains(created, e.Table) })
		}
	}
}

// effects returns the effects of a single statement.
func effects(sql string, tableOf func(index string) string) []Effect {
	sql = strings.TrimSuffix(sql, ";")
	switch found := []string(nil); {
	case match(createTable, sql, &found):
		return referenced(sql, found[1], Moment)
	case match(createIndex, sql, &found) && found[2] != "":
		return []Effect{{found[4], ShareUpdateExclusive, Build}}
	case match(createIndex, sql, &found):
		return []Effect{{found[4], Share, Build}}
	case match(dropIndex, sql, &found) && found[1] != "":
		return []Effect{{tableOf(found[3]), ShareUpdateExclusive, Moment}}
	case match(dropIndex, sql, &found):
		return []Effect{{tableOf(found[3]), AccessExclusive, Moment}}
	case match(dropTable, sql, &found):
		return []Effect{{found[1], AccessExclusive, Moment}, {"", AccessExclusive, Moment}}
	case match(truncate, sql, &found):
		return []Effect{{found[1], AccessExclusive, Moment}}
	case match(alterTable, sql, &found):
		return alterations(found[1], found[2])
	case match(writeRows, sql, &found):
		return []Effect{{found[1], RowExclusive, Rows}}
	case match(createTrigger, sql, &found):
		return []Effect{{found[1], ShareRowExclusive, Moment}}
	case ofFunction.MatchString(sql): // locks no table
		return nil
	}
	return []Effect{{"", AccessExclusive, Unknown}}
}

func match(p *regexp.Regexp, sql string, found *[]string) bool {
	*found = p.FindStringSubmatch(sql)
	return *found != nil
}

// referenced returns the effects on the tables that foreign keys of the table refer to.
func referenced(sql, table string, span Span) []Effect {
	var all []Effect
	for _, to := range references.FindAllStringSubmatch(sql, -1) {
		if e := (Effect{to[1], ShareRowExclusive, span}); to[1] != table && !slices.Contains(all, e) {
			all = append(all, e)
		}
	}
	return all
}

// alterations returns the effects of one ALTER TABLE with several actions: the strongest lock, and
// the longest span, because the lock is held for all actions.
func alterations(table, actions string) []Effect {
	spans := []Span{Moment, Scan, Build, Rewrite, Unknown}
	all, others := Effect{table, "", Moment}, []Effect(nil)
	for _, action := range splitActions(actions) {
		e, more := alteration(table, action)
		if slices.Index(strength, e.Lock) > slices.Index(strength, all.Lock) {
			all.Lock = e.Lock
		}
		if slices.Index(spans, e.For) > slices.Index(spans, all.For) {
			all.For = e.For
		}
		others = append(others, more...)
	}
	return append([]Effect{all}, others...)
}

func alteration(table, action string) (Effect, []Effect) {
	found := []string(nil)
	switch {
	case match(constraint, action, &found):
		span := Scan
		if notValid.MatchString(action) || usingIndex.MatchString(action) {
			span = Moment
		}
		switch strings.ToUpper(found[2]) {
		case "FOREIGN KEY":
			return Effect{table, ShareRowExclusive, span}, referenced(action, table, span)
		case "CHECK":
			return Effect{table, AccessExclusive, span}, nil
		default:
			if span == Scan {
				span = Build
			}
			return Effect{table, AccessExclusive, span}, nil
		}
	case validate.MatchString(action):
		return Effect{table, ShareUpdateExclusive, Scan}, nil
	case addColumn.MatchString(action):
		span := Moment
		if writtenAnew.MatchString(action) {
			span = Rewrite
		}
		return Effect{table, AccessExclusive, span}, referenced(action, table, span)
	case setNotNull.MatchString(action):
		return Effect{table, AccessExclusive, Scan}, nil
	case changeType.MatchString(action):
		return Effect{table, AccessExclusive, Rewrite}, nil
	case ofTheCatalog.MatchString(action):
		return Effect{table, AccessExclusive, Moment}, nil
	case ofStatistics.MatchString(action):
		return Effect{table, ShareUpdateExclusive, Moment}, nil
	}
	return Effect{table, AccessExclusive, Unknown}, nil
}

// splitActions splits at commas outside of parentheses and quotes.
func splitActions(actions string) []string {
	var all []string
	depth, start, quote := 0, 0, rune(0)
	for i, r := range actions {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '\'' || r == '"':
			quote = r
		case r == '(':
			depth++
		case r == ')':
			depth--
		case r == ',' && depth == 0:
			all = append(all, strings.TrimSpace(actions[start:i]))
			start = i + 1
		}
	}
	return append(all, strings.TrimSpace(actions[start:]))
}

// Breaks returns the statements that processes of the previous version may notice: a dropped table,
// column or index, a new name, or a constraint that rejects what they write.
func (m Migration) Breaks() []string {
	var all []string
	created, again := map[string]bool{}, map[string]bool{}
	for _, s := range m.Statements {
		if found := createTable.FindStringSubmatch(s.SQL); found != nil {
			created[found[1]] = true
		}
		if found := createIndex.FindStringSubmatch(s.SQL); found != nil {
			again[found[3]] = true
		}
	}
	for _, s := range m.Statements {
		sql := strings.TrimSuffix(s.SQL, ";")
		if found := dropIndex.FindStringSubmatch(sql); found != nil && again[found[3]] {
			continue // left by an interrupted run; the next statement builds it
		}
		if whatOlderLack.MatchString(sql) || truncate.MatchString(sql) {
			all = append(all, s.SQL)
			continue
		}
		found := alterTable.FindStringSubmatch(sql)
		if found == nil || created[found[1]] {
			continue
		}
		for _, action := range splitActions(found[2]) {
			constrains := constraint.MatchString(action) || setNotNull.MatchString(action) || changeType.MatchString(action)
			required := !constrains && addColumn.MatchString(action) && notNull.MatchString(action) && !hasDefault.MatchString(action)
			if constrains || required || breaksOlder.MatchString(action) {
				all = append(all, s.SQL)
				break
			}
		}
	}
	return all
}
