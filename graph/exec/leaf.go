package exec

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// leaf writes a value that is not nil as the leaf type t.
func (w *writer) leaf(t *typeRef, v any) error {
	switch v := v.(type) {
	case string:
		return w.string(t, v)
	case bool:
		return w.bool(t, v)
	case int:
		return w.int(t, int64(v))
	case int64:
		return w.int(t, v)
	case float64:
		return w.float(t, v)
	case time.Time:
		return w.time(t, v)
	case *time.Time: // before Stringer, which it is
		return w.time(t, *v)
	case fmt.Stringer:
		return w.string(t, v.String())
	}
	rv := reflect.ValueOf(v)
	switch rv.Kind() {
	case reflect.Pointer:
		if rv.IsNil() {
			return fmt.Errorf("%T within a pointer is null", v)
		}
		return w.leaf(t, rv.Elem().Interface())
	case reflect.String:
		return w.string(t, rv.String())
	case reflect.Bool:
		return w.bool(t, rv.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return w.int(t, rv.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if n := rv.Uint(); n <= math.MaxInt64 {
			return w.int(t, int64(n))
		}
	case reflect.Float32, reflect.Float64:
		return w.float(t, rv.Float())
	}
	return mismatch(t, v)
}

func mismatch(t *typeRef, v any) error { return fmt.Errorf("%T is no %s", v, t.name) }

func (w *writer) string(t *typeRef, s string) error {
	switch t.leaf {
	case leafEnum:
		if !slices.Contains(t.enum, s) {
			return fmt.Errorf("%q is no %s", s, t.name)
		}
	case leafString, leafID, leafCustom:
	default:
		return mismatch(t, s)
	}
	w.buf = appendString(w.buf, s)
	return nil
}

func (w *writer) bool(t *typeRef, b bool) error {
	if t.leaf != leafBoolean && t.leaf != leafCustom {
		return mismatch(t, b)
	}
	w.buf = strconv.AppendBool(w.buf, b)
	return nil
}

func (w *writer) int(t *typeRef, n int64) error {
	switch t.leaf {
	case leafInt:
		if int64(int32(n)) != n {
			return fmt.Errorf("%d does not fit the 32 bits of Int", n)
		}
	case leafID:
		w.buf = append(w.buf, '"')
		w.buf = strconv.AppendInt(w.buf, n, 10)
		w.buf = append(w.buf, '"')
		return nil
	case leafFloat, leafCustom:
	default:
		return mismatch(t, n)
	}
	w.buf = strconv.AppendInt(w.buf, n, 10)
	return nil
}

func (w *writer) float(t *typeRef, f float64) error {
	if t.leaf != leafFloat && t.leaf != leafCustom {
		return mismatch(t, f)
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return fmt.Errorf("%v has no JSON", f)
	}
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) { // as encoding/json and JavaScript
		format = 'e'
	}
	w.buf = strconv.AppendFloat(w.buf, f, format, -1, 64)
	return nil
}

// time writes RFC 3339 in UTC with exactly three decimals. time.AppendFormat does too, at five times the cost.
func (w *writer) time(t *typeRef, v time.Time) error {
	if t.leaf != leafCustom && t.leaf != leafString {
		return mismatch(t, v)
	}
	v = v.UTC()
	year, month, day := v.Date()
	if year < 0 || year > 9999 {
		return fmt.Errorf("the year %d has no RFC 3339", year)
	}
	hour, minute, second := v.Clock()
	b := append(w.buf, '"')
	b = append(appendDigits(b, year, 4), '-')
	b = append(appendDigits(b, int(month), 2), '-')
	b = append(appendDigits(b, day, 2), 'T')
	b = append(appendDigits(b, hour, 2), ':')
	b = append(appendDigits(b, minute, 2), ':')
	b = append(appendDigits(b, second, 2), '.')
	b = appendDigits(b, v.Nanosecond()/1e6, 3)
	w.buf = append(b, 'Z', '"')
	return nil
}

func appendDigits(b []byte, n, width int) []byte {
	for range width {
		b = append(b, '0')
	}
	for i := len(b) - 1; n > 0; i-- {
		b[i] = byte('0' + n%10)
		n /= 10
	}
	return b
}

const hexDigits = "0123456789abcdef"

// appendString appends s as a JSON string. Invalid UTF-8 becomes U+FFFD; HTML is left alone.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				b = append(append(b, s[start:i]...), "\ufffd"...)
				start = i + 1
			}
			i += size
			continue
		}
		b = append(b, s[start:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
		}
		i++
		start = i
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}
