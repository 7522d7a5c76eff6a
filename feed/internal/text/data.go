package text

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"strings"

	"tideline/feed/refusal"
)

// Bounds of the app's own fields: bytes in canonical form, and levels of objects and lists.
const (
	MaxData      = 4096
	MaxDataDepth = 5
)

// Data returns a JSON object in canonical form: without white space, names in the order of their
// bytes, numbers as doubles. Objects with the same meaning have the same text. Error: BadInput, if
// the text is not an object, too long, too deep, or has a number that a double cannot hold.
func Data(object string) (string, error) {
	d := json.NewDecoder(strings.NewReader(object))
	d.UseNumber()
	var fields map[string]any
	err := d.Decode(&fields)
	if _, end := d.Token(); err != nil || fields == nil || end != io.EOF {
		return "", refusal.New(refusal.NotAnObject, "The data must be a JSON object.").In("data")
	}
	canonical, err := canonicalOf(fields, 1)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(canonical); err != nil {
		return "", refusal.New(refusal.NotAnObject, "The data must be a JSON object.").In("data")
	}
	text := strings.TrimSuffix(b.String(), "\n")
	if len(text) > MaxData {
		return "", refusal.New(refusal.TooLong, "The data has %d bytes; at most %d are allowed.", len(text), MaxData).In("data").Beyond("dataLength", MaxData, len(text))
	}
	return text, nil
}

// canonicalOf returns the value with its numbers as doubles, which have only one encoding.
func canonicalOf(value any, level int) (any, error) {
	var err error
	switch value := value.(type) {
	case map[string]any:
		for name, v := range value {
			if value[name], err = nested(v, level); err != nil {
				return nil, err
			}
		}
	case []any:
		for i, v := range value {
			if value[i], err = nested(v, level); err != nil {
				return nil, err
			}
		}
	case json.Number:
		f, err := value.Float64()
		exact := f != math.Trunc(f) || math.Abs(f) < 1<<53 || strings.ContainsAny(value.String(), ".eE")
		if err != nil || !exact {
			return nil, refusal.New(refusal.OutOfRange, "The data has a number that a double cannot hold: send it as a text.").In("data")
		}
		if f == 0 { // also turns negative zero into zero
			f = 0
		}
		return f, nil
	}
	return value, nil
}

func nested(value any, level int) (any, error) {
	switch value.(type) {
	case map[string]any, []any:
		if level++; level > MaxDataDepth {
			return nil, refusal.New(refusal.TooDeep, "The data has more than %d levels.", MaxDataDepth).In("data").Beyond("dataDepth", MaxDataDepth, level)
		}
	}
	return canonicalOf(value, level)
}
