// Package transfer is the file by which a network comes or goes. Each line is a JSON object
// with its type: a user, follow, block, post or like. docs/import.md describes them.
//
// What holds:
//
//   - Imported rows are written by package bulk, as those of the mutations are. A second
//     import of a file changes nothing.
//   - A line that is refused does not stop the others, and is told with its number.
//   - A line may refer to lines before it. Within a few thousand lines users come first,
//     then posts, follows, blocks and likes.
//   - An import of an export into an empty database, exported again, is the same bytes,
//     but for the posts of the quarter of an hour before the import: they are new there.
//
// It knows nothing of files: package command opens them, and keeps how far one was read.
package transfer

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"tideline/feed/bulk"
)

const (
	// perCall is how many lines are written together.
	perCall = bulk.MaxRows
	// maxBytes bounds their texts in memory.
	maxBytes = 8 << 20
)

// State is how far an import is: the lines before the offset are written, or refused.
type State struct {
	Offset int64  `json:"offset"` // bytes read, without compression
	SHA256 string `json:"sha256"` // of these
	Lines  int    `json:"lines"`

	Created   int `json:"created"`
	Updated   int `json:"updated"`
	Unchanged int `json:"unchanged"`
	Bad       int `json:"bad"`
}

// ErrOtherFile is returned when a file does not begin with what the state has of it.
var ErrOtherFile = errors.New("the file does not begin with the lines that were imported before")

// Import is an import of one file.
type Import struct {
	Bulk   *bulk.Bulk
	Issuer string // whose the ids are
	// Bad is told of each line that is refused, in any order.
	Bad func(line int, reason string)
	// Written is told how far the import is, each time after rows were committed.
	Written func(ctx context.Context, s State) error
}

// Run imports r, decompressed if it begins as gzip does, from where the state from is;
// the zero State is the beginning. It returns how far it came, also with an error. Errors:
// ErrOtherFile; of reading; of a statement; of Written.
//
// Cost: memory for a few thousand lines, of 8 MiB together or one that is longer.
func (im *Import) Run(ctx context.Context, r io.Reader, from State) (State, error) {
	lines, err := open(r)
	if err == nil {
		err = lines.skip(from)
	}
	if err != nil {
		return from, err
	}
	run := &running{im, lines, from, newRows()}
	for {
		line, err := lines.next()
		if errors.Is(err, io.EOF) {
			return run.state, run.write(ctx)
		}
		long := errors.Is(err, bufio.ErrBufferFull)
		if err != nil && !long {
			return run.state, errors.Join(fmt.Errorf("after line %d: %w", lines.number-1, err), run.writeBefore(ctx))
		}
		if err := run.take(ctx, line, long); err != nil {
			return run.state, err
		}
	}
}

type running struct {
	*Import
	lines *lineReader
	state State
	rows  *rows
}

// take adds the line to the rows, and writes them when they are many.
func (r *running) take(ctx context.Context, line []byte, long bool) error {
	line = bytes.TrimSpace(line)
	switch added, err := r.add(line, long); {
	case err != nil:
		r.bad(r.lines.number, err.Error())
	case !added: // the user or the post is among the rows: it is for the next call
		if err := r.writeBefore(ctx); err != nil {
			return err
		}
		if _, err := r.add(line, false); err != nil {
			return err
		}
	}
	if r.rows.lines < perCall && r.rows.bytes < maxBytes {
		r.lines.commit()
		return nil
	}
	return r.write(ctx)
}

func (r *running) add(line []byte, long bool) (bool, error) {
	switch {
	case long:
		return false, fmt.Errorf("the line has more than %d bytes", MaxLine)
	case len(line) == 0:
		return true, nil
	}
	return r.rows.add(r.lines.number, line)
}

func (r *running) bad(line int, reason string) {
	r.rows.bad++
	r.Bad(line, reason)
}

// write writes the rows of all lines that were read.
func (r *running) write(ctx context.Context) error {
	r.lines.commit()
	return r.writeBefore(ctx)
}

// writeBefore writes the rows of all lines but the one that was read last.
func (r *running) writeBefore(ctx context.Context) error {
	next, before := r.state, r.lines.done
	err := ctx.Err()
	if err == nil {
		err = each(ctx, r, &next, "user", r.rows.users, r.Bulk.Users)
	}
	if err == nil {
		err = each(ctx, r, &next, "post", r.rows.posts, r.Bulk.Posts)
	}
	if err == nil {
		err = each(ctx, r, &next, "follow", r.rows.follows, r.Bulk.Follows)
	}
	if err == nil {
		err = each(ctx, r, &next, "block", r.rows.blocks, r.Bulk.Blocks)
	}
	if err == nil {
		err = each(ctx, r, &next, "like", r.rows.likes, r.Bulk.Likes)
	}
	if err != nil { // what was written is as it is the next time, and counted then
		return err
	}
	next.Bad += r.rows.bad
	next.Offset, next.Lines, next.SHA256 = before.Offset, before.Lines, before.SHA256()
	r.state, r.rows = next, newRows()
	return r.Written(ctx, r.state)
}

// each writes rows of one type.
func each[T any](ctx context.Context, r *running, next *State, kind string, list []T, write func(context.Context, string, []T) ([]*bulk.Result, error)) error {
	if len(list) == 0 {
		return nil
	}
	results, err := write(ctx, r.Issuer, list)
	if err != nil {
		return fmt.Errorf("write the rows from line %d on: %w", r.rows.numbers[kind][0], err)
	}
	for i, result := range results {
		switch result.Status {
		case bulk.Created:
			next.Created++
		case bulk.Updated:
			next.Updated++
		case bulk.Unchanged:
			next.Unchanged++
		case bulk.Refused:
			r.bad(r.rows.numbers[kind][i], kind+": "+*result.Reason())
		}
	}
	return nil
}

// lineReader reads lines, and knows what it has read.
type lineReader struct {
	r      *bufio.Reader
	sum    hash.Hash
	offset int64
	number int // of the last line, from 1 on
	done   position
}

// position is the end of a line.
type position struct {
	Offset int64
	Lines  int
	sum    [sha256.Size]byte
}

func (p position) SHA256() string { return hex.EncodeToString(p.sum[:]) }

func open(r io.Reader) (*lineReader, error) {
	in := bufio.NewReaderSize(r, MaxLine)
	if magic, err := in.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		unzipped, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("begin of gzip: %w", err)
		}
		in = bufio.NewReaderSize(unzipped, MaxLine)
	}
	return &lineReader{r: in, sum: sha256.New()}, nil
}

// skip reads past what the state has.
func (l *lineReader) skip(s State) error {
	n, err := io.CopyN(l.sum, l.r, s.Offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read what was imported before: %w", err)
	}
	l.offset, l.number = n, s.Lines
	l.commit()
	if n != s.Offset || s.Offset > 0 && l.done.SHA256() != s.SHA256 {
		return ErrOtherFile
	}
	return nil
}

// commit notes the position after the last line.
func (l *lineReader) commit() {
	l.done.Offset, l.done.Lines = l.offset, l.number
	l.sum.Sum(l.done.sum[:0])
}

// next returns the next line. Errors: io.EOF; bufio.ErrBufferFull for one that is longer
// than MaxLine, which is read to its end; of reading.
func (l *lineReader) next() ([]byte, error) {
	line, err := l.r.ReadSlice('\n')
	l.note(line)
	if errors.Is(err, io.EOF) && len(line) > 0 {
		err = nil
	}
	if err == nil || errors.Is(err, bufio.ErrBufferFull) {
		l.number++
	}
	if l.number == 1 && err == nil {
		line = bytes.TrimPrefix(line, []byte("\uFEFF"))
	}
	for full := errors.Is(err, bufio.ErrBufferFull); full; {
		rest, err := l.r.ReadSlice('\n')
		l.note(rest)
		if full = errors.Is(err, bufio.ErrBufferFull); err != nil && !full && err != io.EOF {
			return nil, err
		}
	}
	return line, err
}

func (l *lineReader) note(piece []byte) {
	_, _ = l.sum.Write(piece)
	l.offset += int64(len(piece))
}
