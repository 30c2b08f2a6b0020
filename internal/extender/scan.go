package extender

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	kjson "sigs.k8s.io/json"
)

const (
	// mostDepth bounds how deep values are nested.
	mostDepth = 256
	// mostFields bounds the fields of a message.
	mostFields = 32
)

// errJSON marks what is not JSON of the expected form.
var errJSON = errors.New("is not the JSON that is expected")

// objectOf returns the fields of an object as they are written, at most so many. It goes over the text once and does not look into values: most of
// a question are the names of nodes, and a general decoder would take longer for them than their answer takes. Whoever uses a
// value reads it, and so finds out whether it is one.
func objectOf(text []byte, most int) (map[string][]byte, error) {
	s := scanner{text: text}
	fields := map[string][]byte{}
	if err := s.expect('{'); err != nil {
		return nil, err
	}
	if s.next() == '}' {
		s.at++
		return fields, s.end()
	}
	for {
		key, err := s.key()
		if err != nil {
			return nil, err
		}
		if _, twice := fields[key]; twice || len(fields) >= most {
			return nil, fmt.Errorf("%w: field %q occurs twice, or there are more than %d", errJSON, key, most)
		}
		if fields[key], err = s.value(); err != nil {
			return nil, err
		}
		switch s.next() {
		case ',':
			s.at++
		case '}':
			s.at++
			return fields, s.end()
		default:
			return nil, s.fault()
		}
	}
}

// namesOf reads a list of names; none is an error.
func namesOf(text []byte) ([]string, error) {
	if !said(text) {
		return nil, fmt.Errorf("there are none: %w: set nodeCacheCapable: true for this extender in its configuration", errSetUp)
	}
	all, ok := plainNames(string(text))
	if !ok {
		all = nil
		faults, err := kjson.UnmarshalStrict(text, &all)
		if err := errors.Join(append(faults, err)...); err != nil {
			return nil, err
		}
	}
	if len(all) > mostNodes {
		return nil, fmt.Errorf("%d are more than %d", len(all), mostNodes)
	}
	return all, eachIsName(all)
}

func eachIsName(all []string) error {
	for _, name := range all {
		if name == "" || len(name) > longestName {
			return fmt.Errorf("a name has 1 to %d bytes", longestName)
		}
	}
	return nil
}

// plainNames reads a list whose names are the same in JSON and have no space between them. All names are parts of one string.
func plainNames(text string) (all []string, ok bool) {
	if len(text) < 4 || text[0] != '[' || text[len(text)-1] != ']' || !strings.HasSuffix(text, `"]`) {
		return nil, false
	}
	all = make([]string, 0, strings.Count(text, ",")+1)
	for rest := text[1:]; ; {
		if rest[0] != '"' {
			return nil, false
		}
		end := strings.IndexByte(rest[1:], '"')
		if end < 0 || !plain(rest[1:1+end]) {
			return nil, false
		}
		all = append(all, rest[1:1+end])
		if rest = rest[end+2:]; rest == "]" {
			return all, true
		}
		if len(rest) < 2 || rest[0] != ',' {
			return nil, false
		}
		rest = rest[1:]
	}
}

// scanner goes over a text of JSON.
type scanner struct {
	text []byte
	at   int
}

// next is the next byte that is no space, 0 at the end.
func (s *scanner) next() byte {
	for ; s.at < len(s.text); s.at++ {
		switch b := s.text[s.at]; b {
		case ' ', '\t', '\r', '\n':
		default:
			return b
		}
	}
	return 0
}

func (s *scanner) fault() error { return fmt.Errorf("%w, at byte %d", errJSON, s.at) }

func (s *scanner) expect(want byte) error {
	if s.next() != want {
		return s.fault()
	}
	s.at++
	return nil
}

// end wants nothing more.
func (s *scanner) end() error {
	if s.next(); s.at < len(s.text) {
		return s.fault()
	}
	return nil
}

// key reads the name of a field and its colon.
func (s *scanner) key() (string, error) {
	if s.next() != '"' {
		return "", s.fault()
	}
	begin := s.at
	if err := s.skipText(); err != nil {
		return "", err
	}
	var key string
	if err := json.Unmarshal(s.text[begin:s.at], &key); err != nil {
		return "", fmt.Errorf("%w: %w", errJSON, err)
	}
	return key, s.expect(':')
}

// skipText goes behind a string; the next byte is its quote.
func (s *scanner) skipText() error {
	for at := s.at + 1; ; {
		end := bytes.IndexByte(s.text[at:], '"')
		if end < 0 {
			return s.fault()
		}
		end += at
		escapes := 0
		for s.text[end-1-escapes] == '\\' {
			escapes++
		}
		if at = end + 1; escapes%2 == 0 {
			s.at = at
			return nil
		}
	}
}

// value goes behind a value and returns it.
func (s *scanner) value() ([]byte, error) {
	first := s.next()
	begin := s.at
	switch first {
	case '"':
		err := s.skipText()
		return s.text[begin:s.at], err
	case '{', '[':
		err := s.skipNested()
		return s.text[begin:s.at], err
	}
	for s.at < len(s.text) && bytes.IndexByte([]byte(",}] \t\r\n"), s.text[s.at]) < 0 {
		s.at++
	}
	if s.at == begin {
		return nil, s.fault()
	}
	return s.text[begin:s.at], nil
}

// skipNested goes behind an object or a list by its brackets.
func (s *scanner) skipNested() error {
	var open [mostDepth]byte
	for depth := 0; ; {
		switch b := s.next(); b {
		case 0:
			return s.fault()
		case '"':
			if err := s.skipText(); err != nil {
				return err
			}
			continue
		case '{', '[':
			if depth == mostDepth {
				return fmt.Errorf("%w: it is nested deeper than %d", errJSON, mostDepth)
			}
			open[depth] = b
			depth++
		case '}', ']':
			if depth--; open[depth] != b-2 { // in ASCII a bracket closes the one two before it
				return s.fault()
			}
			if depth == 0 {
				s.at++
				return nil
			}
		}
		s.at++
	}
}
