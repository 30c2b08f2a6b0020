package control

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Method names what a request asks for.
type Method string

// The methods.
const (
	MethodHello  Method = "hello"  // nothing → Info
	MethodCreate Method = "create" // CreateParams → Created
	MethodList   Method = "list"   // nothing → Listing
	MethodSet    Method = "set"    // SetParams → Tenant
	MethodStop   Method = "stop"   // StopParams → nothing, when the tenant has ended
	// MethodHandOver is what a system agent asks a user's own, which then ends.
	MethodHandOver Method = "hand-over" // nothing → Heritage
	methodCancel   Method = "cancel"
)

// Code tells programs what went wrong; the message tells people.
type Code string

// The codes.
const (
	// CodeInvalid is a request that can never succeed.
	CodeInvalid Code = "invalid"
	// CodeRefused is a request that does not fit now.
	CodeRefused Code = "refused"
	// CodeNotFound is a tenant or GPU that does not exist.
	CodeNotFound Code = "not-found"
	// CodeDenied is something only the tenant's owner or root may do.
	CodeDenied Code = "denied"
	// CodeMoved is an agent that grants nothing because another takes over.
	CodeMoved Code = "moved"
	// CodeInternal is the agent's own trouble.
	CodeInternal Code = "internal"
)

// Error is an answer that is an error. Message says what to do next.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// Error implements error.
func (e *Error) Error() string {
	return e.Message
}

// Errorf makes an Error.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// CodeOf returns the code of err, CodeInternal where it has none.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}

const (
	// maxLine bounds a request: above the longest command line, far below what
	// would trouble the agent's memory.
	maxLine = 4 << 20
	// maxAnswer bounds an answer: far above the largest listing, which grows with
	// tenants and their processes.
	maxAnswer = 256 << 20
)

type request struct {
	ID     uint64          `json:"id"`
	Method Method          `json:"method"`
	Params json.RawMessage `json:"params,omitempty"`
}

type response struct {
	ID uint64 `json:"id"`
	// Progress comes any number of times before the answer, which has the other fields.
	Progress json.RawMessage `json:"progress,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
	Error    *Error          `json:"error,omitempty"`
}

// lines reads messages from one peer.
type lines struct {
	scanner *bufio.Scanner
}

func newLines(r io.Reader, longest int) *lines {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 4096), longest)
	return &lines{s}
}

// next decodes the next line into v. It returns io.EOF at the end. Agents
// decode strictly; clients leave out answers' fields that they do not know.
func (l *lines) next(v any, decode func([]byte, any) error) error {
	if !l.scanner.Scan() {
		if err := l.scanner.Err(); err != nil {
			return fmt.Errorf("read message: %w", err)
		}
		return io.EOF
	}
	return decode(l.scanner.Bytes(), v)
}

// decodeStrict refuses unknown fields and trailing data, so that a misspelt
// field is an error and not a silently ignored wish.
func decodeStrict(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("decode message: %w", err)
	}
	if d.More() {
		return errors.New("decode message: more than one value on a line")
	}
	return nil
}

func encodeLine(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode message: %w", err)
	}
	return append(data, '\n'), nil
}
