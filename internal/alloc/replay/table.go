package replay

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// format is the columns of a table. Those from index optional on may be absent.
type format struct {
	columns  []string
	optional int
}

// table reads rows of a CSV file and keeps track of the line.
type table struct {
	file   string
	source *source
	reader *csv.Reader
	column map[string]int
	row    []string
	line   int
	rows   int
	names  map[string]int
}

// open reads the header and returns which of the formats it has.
func open(file string, r io.Reader, formats ...format) (*table, int, error) {
	t := &table{file: file, column: map[string]int{}, names: map[string]int{}}
	var err error
	if t.source, err = newSource(r); err != nil {
		return nil, 0, t.at(1, "", err)
	}
	t.reader = csv.NewReader(t.source)
	t.reader.ReuseRecord = true
	header, err := t.reader.Read()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the file is empty")
		}
		return nil, 0, t.at(1, "", err)
	}
	for i, name := range header {
		name = strings.TrimPrefix(name, "\ufeff")
		if _, twice := t.column[name]; twice {
			return nil, 0, t.at(1, name, errors.New("the column appears twice"))
		}
		t.column[name] = i
	}
	for which, f := range formats {
		if _, ok := t.column[f.columns[f.optional-1]]; !ok {
			continue
		}
		if _, ok := t.column[f.columns[0]]; !ok {
			continue
		}
		return t, which, t.matches(f)
	}
	return nil, 0, t.at(1, "", fmt.Errorf("the columns match no known format: the first must be %s", alternatives(formats)))
}

func alternatives(formats []format) string {
	var texts []string
	for _, f := range formats {
		texts = append(texts, strings.Join(f.columns[:f.optional], ","))
	}
	return strings.Join(texts, " or ")
}

func (t *table) matches(f format) error {
	for name := range t.column {
		if !slices.Contains(f.columns, name) {
			return t.at(1, name, errors.New("unknown column"))
		}
	}
	for _, name := range f.columns[:f.optional] {
		if _, ok := t.column[name]; !ok {
			return t.at(1, name, errors.New("the column is missing"))
		}
	}
	return nil
}

// next reads a row. It returns io.EOF after the last one.
func (t *table) next() error {
	t.source.startRow()
	row, err := t.reader.Read()
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	var fault *csv.ParseError
	if errors.As(err, &fault) {
		return t.at(fault.Line, "", fault.Err)
	}
	if err != nil {
		return t.at(t.line+1, "", err)
	}
	t.row = row
	t.line, _ = t.reader.FieldPos(0)
	if t.rows++; t.rows > maxRows {
		return t.at(t.line, "", fmt.Errorf("%w: more than %d rows", ErrTooLarge, maxRows))
	}
	for _, field := range row {
		if len(field) > maxField {
			return t.at(t.line, "", fmt.Errorf("%w: a field of %d bytes", ErrTooLarge, len(field)))
		}
	}
	return nil
}

// name returns a column that must not repeat.
func (t *table) name(column string) (string, error) {
	name := strings.Clone(t.text(column))
	if name == "" {
		return "", t.fault(column, errors.New("the name is empty"))
	}
	if first, twice := t.names[name]; twice {
		return "", t.fault(column, fmt.Errorf("%q is already in line %d", name, first))
	}
	t.names[name] = t.line
	return name, nil
}

// text returns a column, empty when it is absent.
func (t *table) text(column string) string {
	if i, ok := t.column[column]; ok {
		return t.row[i]
	}
	return ""
}

// number returns a whole number from 0 to most.
func (t *table) number(column string, most int64) (int64, error) {
	text := t.text(column)
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) || err == nil && n > most:
		return 0, t.fault(column, fmt.Errorf("%s is more than %d", text, most))
	case err != nil:
		return 0, t.fault(column, fmt.Errorf("%q is not a whole number", text))
	case n < 0:
		return 0, t.fault(column, fmt.Errorf("%d is negative", n))
	}
	return n, nil
}

// numbers fills in several columns.
func (t *table) numbers(fields ...field) error {
	for _, f := range fields {
		n, err := t.number(f.column, f.most)
		if err != nil {
			return err
		}
		*f.into = n
	}
	return nil
}

type field struct {
	column string
	most   int64
	into   *int64
}

func (t *table) fault(column string, err error) error { return t.at(t.line, column, err) }

func (t *table) at(line int, column string, err error) error {
	return &FieldError{File: t.file, Line: line, Column: column, Err: err}
}
