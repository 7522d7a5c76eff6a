package seed

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"

	"tideline/feed/account"
)

// maxLine is the length of the longest allowed line in bytes. Two handles take 61.
const maxLine = 4096

// badLine is a line that is not imported, as an error.
type badLine struct {
	number int // the first line is 1
	reason string
}

func (b *badLine) Error() string { return fmt.Sprintf("line %d: %s", b.number, b.reason) }

// lineReader reads a follow file: two names per line, separated by spaces or tabs.
type lineReader struct {
	r      *bufio.Reader
	number int // lines read so far
}

// newLineReader reads r. It decompresses r if it begins like gzip.
func newLineReader(r io.Reader) (*lineReader, error) {
	plain := bufio.NewReaderSize(r, maxLine)
	if magic, err := plain.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		unzipped, err := gzip.NewReader(plain)
		if err != nil {
			return nil, fmt.Errorf("gzip header: %w", err)
		}
		return &lineReader{r: bufio.NewReaderSize(unzipped, maxLine)}, nil
	}
	return &lineReader{r: plain}, nil
}

// next returns the handles of the next line that is neither blank nor a comment. Errors: *badLine, after
// which the caller may continue; io.EOF at the end; any other error if the file cannot be read.
func (l *lineReader) next() (follower, followee string, err error) {
	for {
		line, err := l.r.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		last := errors.Is(err, io.EOF) && len(line) > 0
		if err != nil && !long && !last {
			return "", "", err
		}
		l.number++
		line = bytes.TrimSpace(line) // \r\n too
		if l.number == 1 {
			line = bytes.TrimPrefix(line, []byte("\uFEFF"))
		}
		skip := len(line) == 0 || line[0] == '#'
		if long {
			if err := l.skipRest(); err != nil {
				return "", "", err
			}
			if !skip {
				return "", "", &badLine{l.number, fmt.Sprintf("longer than %d bytes", maxLine)}
			}
		}
		if !skip {
			return l.parse(string(line))
		}
	}
}

// skipRest skips the rest of a line that is too long.
func (l *lineReader) skipRest() error {
	for {
		_, err := l.r.ReadSlice('\n')
		if err == nil || errors.Is(err, io.EOF) {
			return nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

func (l *lineReader) parse(line string) (follower, followee string, err error) {
	fields := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' })
	if len(fields) != 2 {
		return "", "", &badLine{l.number, fmt.Sprintf("expected 2 names, found %d: %s", len(fields), shown(line))}
	}
	var handles [2]string
	for i, name := range fields {
		handle, ok := handleOf(name)
		if !ok {
			return "", "", &badLine{l.number, fmt.Sprintf("no handle can be made of %s: 1 to %d of a-z, 0-9 and _", shown(name), account.MaxHandle)}
		}
		handles[i] = handle
	}
	if handles[0] == handles[1] {
		return "", "", &badLine{l.number, handles[0] + " follows itself"}
	}
	return handles[0], handles[1], nil
}

// handleOf returns the handle of a name in a file: "u" and the number for a number, since files of numbered
// nodes are the most common, and otherwise the name itself.
func handleOf(name string) (string, bool) {
	if strings.Trim(name, "0123456789") == "" {
		name = "u" + name
	}
	handle, err := account.Handle(name)
	return handle, err == nil
}

// shown returns a short form of some text of a file, safe to print on a terminal.
func shown(s string) string {
	const most = 60
	if len(s) > most {
		s = s[:most] + "…"
	}
	return fmt.Sprintf("%q", s)
}
