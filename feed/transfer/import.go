// Package transfer imports and exports a network as a file. Each line is a JSON object with its
// type: a user, follow, block, post or like. docs/import.md describes them.
//
// Invariants:
//
//   - Package bulk writes imported rows, as it does for the mutations. A second import of a
//     file changes nothing.
//   - Suspended users, and posts that moderators hid, are imported hidden and never shown in
//     between. Deleted posts, and users who are being deleted or will be, are left out.
//   - A refused line does not stop the others, and is reported with its number.
//   - A line may refer to lines before it. Within a few thousand lines users are written
//     first, then posts, follows, blocks and likes. So a parent comes before its replies, and no
//     cycle can be imported.
//   - An export imported into an empty database and exported again has the same bytes,
//     except for posts of the quarter of an hour before the import, which become new posts.
//
// The package does not handle files: package command opens them, and stores how far one was read.
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
	// maxBytes bounds the text of these lines in memory.
	maxBytes = 8 << 20
)

// State is the progress of an import: the lines before Offset are written or refused.
type State struct {
	Offset int64  `json:"offset"` // uncompressed bytes read
	SHA256 string `json:"sha256"` // of these bytes
	Lines  int    `json:"lines"`

	Created   int `json:"created"`
	Updated   int `json:"updated"`
	Unchanged int `json:"unchanged"`
	Bad       int `json:"bad"`
}

// ErrOtherFile is returned if a file does not begin with the bytes that the state describes.
var ErrOtherFile = errors.New("the file does not begin with the lines that were imported before")

// Import is an import of one file.
type Import struct {
	Bulk   *bulk.Bulk
	Issuer string // the issuer of the file's ids
	// Bad is called for each refused line, in any order.
	Bad func(line int, reason string)
	// Written is called with the new state each time after rows were committed.
	Written func(ctx context.Context, s State) error
}

// Run imports r from the state from on; the zero State is the beginning. It decompresses r if r
// begins like gzip. It returns the new state, also with an error. Errors: ErrOtherFile; errors of
// reading, of a statement, and of Written. Run reads ahead: after any error except one of reading,
// a read of r may still be running.
//
// Cost: memory for two batches of a few thousand lines, each of 8 MiB or one longer line.
func (im *Import) Run(ctx context.Context, r io.Reader, from State) (State, error) {
	lines, err := open(r)
	if err == nil {
		err = lines.skip(from)
	}
	if err != nil {
		return from, err
	}
	ahead, done := make(chan *rows), make(chan struct{})
	defer close(done)
	var unread error // known when ahead is closed
	go func() {
		defer close(ahead)
		unread = lines.read(ahead, done)
	}()
	state := from
	for {
		select {
		case <-ctx.Done():
			return state, ctx.Err()
		case rows, more := <-ahead:
			if !more {
				return state, unread
			}
			if state, err = im.write(ctx, state, rows); err != nil {
				return state, err
			}
		}
	}
}

// read sends the rows of all lines until done is closed.
func (l *lineReader) read(ahead chan<- *rows, done <-chan struct{}) error {
	list := newRows()
	send := func() bool { // sends the rows of all lines up to the position
		list.end = l.done
		select {
		case ahead <- list:
			list = newRows()
			return true
		case <-done:
			return false
		}
	}
	for {
		line, err := l.next()
		long := errors.Is(err, bufio.ErrBufferFull)
		if err != nil && !long {
			if !send() || errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("after line %d: %w", l.number-1, err)
		}
		line = bytes.TrimSpace(line)
		added, err := list.take(l.number, line, long)
		if err == nil && !added { // the batch already has the user or post: the line goes into the next call
			if !send() {
				return nil
			}
			_, err = list.take(l.number, line, long)
		}
		if err != nil {
			list.bad = append(list.bad, badLine{l.number, err.Error()})
		}
		l.commit()
		if list.lines+len(list.bad) >= perCall || list.bytes >= maxBytes {
			if !send() {
				return nil
			}
		}
	}
}

// take is add for a line of a file, which may be empty or too long.
func (r *rows) take(number int, line []byte, long bool) (added bool, err error) {
	switch {
	case long:
		return false, fmt.Errorf("the line has more than %d bytes", MaxLine)
	case len(line) == 0:
		return true, nil
	}
	return r.add(number, line)
}

// write writes the rows, and returns the new state.
func (im *Import) write(ctx context.Context, before State, list *rows) (State, error) {
	next := before
	err := ctx.Err()
	if err == nil {
		err = each(ctx, im, list, &next, "user", list.users, im.Bulk.Users)
	}
	if err == nil {
		err = each(ctx, im, list, &next, "post", list.posts, im.Bulk.Posts)
	}
	if err == nil {
		err = each(ctx, im, list, &next, "follow", list.follows, im.Bulk.Follows)
	}
	if err == nil {
		err = each(ctx, im, list, &next, "block", list.blocks, im.Bulk.Blocks)
	}
	if err == nil {
		err = each(ctx, im, list, &next, "like", list.likes, im.Bulk.Likes)
	}
	if err != nil { // rows that were written are unchanged at the next attempt, and are counted then
		return before, err
	}
	for _, bad := range list.bad {
		im.Bad(bad.number, bad.reason)
	}
	next.Bad += len(list.bad)
	next.Offset, next.Lines, next.SHA256 = list.end.Offset, list.end.Lines, list.end.SHA256()
	return next, im.Written(ctx, next)
}

// each writes the rows of one type.
func each[T any](ctx context.Context, im *Import, list *rows, next *State, kind string, of []T, write func(context.Context, string, []T) ([]*bulk.Result, error)) error {
	if len(of) == 0 {
		return nil
	}
	results, err := write(ctx, im.Issuer, of)
	if err != nil {
		return fmt.Errorf("write the rows from line %d on: %w", list.numbers[kind][0], err)
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
			list.bad = append(list.bad, badLine{list.numbers[kind][i], kind + ": " + *result.Message()})
		}
	}
	return nil
}

// lineReader reads lines, and tracks its position and checksum.
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
			return nil, fmt.Errorf("gzip header: %w", err)
		}
		in = bufio.NewReaderSize(unzipped, MaxLine)
	}
	return &lineReader{r: in, sum: sha256.New()}, nil
}

// skip reads past the part that the state covers.
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

// commit stores the position after the last line.
func (l *lineReader) commit() {
	l.done.Offset, l.done.Lines = l.offset, l.number
	l.sum.Sum(l.done.sum[:0])
}

// next returns the next line. Errors: io.EOF; bufio.ErrBufferFull for a line longer than MaxLine,
// which is read to its end; errors of reading.
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
