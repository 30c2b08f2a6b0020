package abi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/big"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// A scalar is a value as a description writes it, and its line.
type scalar struct {
	text string
	line int
}

// UnmarshalYAML keeps the text, from which YAML would make another number.
func (s *scalar) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind != yaml.ScalarNode {
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: want one value here", node.Line)}}
	}
	*s = scalar{node.Value, node.Line}
	return nil
}

// A description is a layout as its file writes it.
type description struct {
	Prefix    scalar `yaml:"prefix"`
	GoPrefix  scalar `yaml:"go"`
	Constants []struct {
		Name  scalar `yaml:"name"`
		Type  scalar `yaml:"type"`
		Value scalar `yaml:"value"`
		Doc   scalar `yaml:"doc"`
	} `yaml:"constants"`
	Structs []struct {
		Name   scalar `yaml:"name"`
		Doc    scalar `yaml:"doc"`
		Align  scalar `yaml:"align"`
		Size   scalar `yaml:"size"`
		Fields []struct {
			Name  scalar `yaml:"name"`
			Type  scalar `yaml:"type"`
			Align scalar `yaml:"align"`
			Doc   scalar `yaml:"doc"`
		} `yaml:"fields"`
	} `yaml:"structs"`
	Requires []struct {
		That    scalar `yaml:"that"`
		Because scalar `yaml:"because"`
	} `yaml:"requires"`
}

// readDescription reads a description strictly. The errors name file and line.
func readDescription(file string, text []byte) (*Layout, error) {
	// The YAML reader refuses these too, but without a line.
	if at := bytes.IndexFunc(text, func(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune("\n\r\t", r) }); at >= 0 {
		r, _ := utf8.DecodeRune(text[at:])
		return nil, fmt.Errorf("%s:%d: read layout: %q is a control character", file, 1+bytes.Count(text[:at], []byte("\n")), r)
	}
	var d description
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&d); err != nil && !errors.Is(err, io.EOF) {
		return nil, located(file, err)
	}
	if err := decoder.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: a second document follows the first", file)
	}
	return d.layout(file)
}

// layout is the description as it will be checked. The numbers of bytes in it are read here.
func (d description) layout(file string) (*Layout, error) {
	var faults []error
	bytes := func(of, what string, s scalar) int {
		n, err := byteCount(what, s)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s:%d: %s: %w", file, s.line, of, err))
		}
		return n
	}
	l := &Layout{Prefix: d.Prefix.text, GoPrefix: d.GoPrefix.text}
	for _, c := range d.Constants {
		l.Constants = append(l.Constants, Constant{
			Name: c.Name.text, Type: c.Type.text, Value: c.Value.text, Doc: c.Doc.text,
			line: firstLine(c.Name, c.Type, c.Value, c.Doc),
		})
	}
	for _, s := range d.Structs {
		to := Struct{
			Name: s.Name.text, Doc: s.Doc.text, Align: bytes(s.Name.text, "align", s.Align), Size: bytes(s.Name.text, "size", s.Size),
			line: firstLine(s.Name, s.Doc),
		}
		for _, f := range s.Fields {
			to.Fields = append(to.Fields, Field{
				Name: f.Name.text, Type: f.Type.text, Align: bytes(s.Name.text+"."+f.Name.text, "align", f.Align), Doc: f.Doc.text,
				line: firstLine(f.Name, f.Type, f.Doc, scalar{line: to.line}),
			})
		}
		l.Structs = append(l.Structs, to)
	}
	for _, r := range d.Requires {
		l.requires = append(l.requires, requirement{r.That.text, r.Because.text, firstLine(r.That, r.Because)})
	}
	return l, errors.Join(faults...)
}

// byteCount is the size or alignment that a description gives, 0 for none.
func byteCount(what string, s scalar) (int, error) {
	if s.line == 0 {
		return 0, nil
	}
	n, err := readNumber(s.text)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	if n.Sign() < 1 || n.Cmp(big.NewInt(maxStruct)) > 0 {
		return 0, fmt.Errorf("%s %d is not between 1 and %d", what, n, maxStruct)
	}
	return int(n.Int64()), nil
}

// firstLine is the line of the first value that is there.
func firstLine(values ...scalar) int {
	for _, v := range values {
		if v.line > 0 {
			return v.line
		}
	}
	return 1
}

var (
	yamlLine  = regexp.MustCompile(`^(?:yaml: )?line ([0-9]+): `)
	yamlShape = regexp.MustCompile(`(?s)^cannot unmarshal .* into (\[\])?(?:struct|abi\.)`)
)

// located gives the YAML reader's errors the form of ours.
func located(file string, err error) error {
	messages := []string{err.Error()}
	if wrong, ok := errors.AsType[*yaml.TypeError](err); ok {
		messages = wrong.Errors
	}
	var faults []error
	for _, message := range messages {
		line := "1"
		if m := yamlLine.FindStringSubmatch(message); m != nil {
			line, message = m[1], message[len(m[0]):]
		}
		message, _, _ = strings.Cut(message, " in type ")
		if m := yamlShape.FindStringSubmatch(message); m != nil {
			message = "want keys with values here"
			if m[1] != "" {
				message = "want a list here"
			}
		}
		faults = append(faults, fmt.Errorf("%s:%s: read layout: %s", file, line, message))
	}
	return errors.Join(faults...)
}
