package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// Method names what a request asks for.
type Method string

// The methods.
const (
	MethodHello  Method = "hello"  // nothing → Info
	MethodCreate Method = "create" // CreateParams → Created
	MethodList   Method = "list"   // nothing → Listing
	MethodSet    Method = "set"    // SetParams → Tenant
	// MethodExplain creates nothing.
	MethodExplain Method = "explain" // ExplainParams → Explanation
	MethodStop    Method = "stop"    // StopParams → nothing, when the tenant has ended
	MethodSuspend Method = "suspend" // SuspendParams → Tenant, when it is off its GPUs
	MethodResume  Method = "resume"  // ResumeParams → Tenant, when it is on them again
	MethodHistory Method = "history" // HistoryParams → History
	// Those from here to MethodLayout are about whole GPUs.
	MethodForms    Method = "forms"     // nothing → Forms
	MethodGiveForm Method = "give-form" // FormParams → Formed
	MethodMIGMode  Method = "mig-mode"  // MIGModeParams → Formed
	MethodLayout   Method = "layout"    // LayoutParams → Rearrangement
	// MethodWeb makes a link to the agent's web page.
	MethodWeb Method = "web" // nothing → Web
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
	// CodeBusy is a user who asks too much at once.
	CodeBusy Code = "busy"
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
	// maxLine bounds a request. The longest honest one has a whole LD_LIBRARY_PATH of the
	// 128 KiB that Linux allows one variable.
	maxLine = 256 << 10
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

// outcome is a [response] with a result that is not encoded yet.
type outcome struct {
	ID     uint64 `json:"id"`
	Result any    `json:"result"`
}

// decodeResponse decodes a line into a response. Of an answer as agents write them, an [outcome], it only takes the result out:
// whoever asked decodes that, and nobody has to read a long listing twice.
func decodeResponse(line []byte, v any) error {
	resp, isResponse := v.(*response)
	number, result, isOutcome := bytes.Cut(line[:min(len(line), outcomeHead)], []byte(`,"result":`))
	id, err := strconv.ParseUint(string(bytes.TrimPrefix(number, []byte(`{"id":`))), 10, 64)
	if !isResponse || !isOutcome || err != nil || !bytes.HasSuffix(line, []byte("}")) {
		return json.Unmarshal(line, v)
	}
	begin := min(len(line), outcomeHead) - len(result)
	*resp = response{ID: id, Result: bytes.Clone(line[begin : len(line)-1])} // the line's memory is read into again
	return nil
}

// outcomeHead is more than what stands before a result.
const outcomeHead = len(`{"id":18446744073709551615,"result":`)

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

// encode is v as JSON, without the escapes that only web pages need.
func encode(v any) ([]byte, error) {
	line, err := encodeLine(v)
	return bytes.TrimSuffix(line, []byte("\n")), err
}

func encodeLine(v any) ([]byte, error) {
	var line bytes.Buffer
	e := json.NewEncoder(&line) // which ends the line
	e.SetEscapeHTML(false)      // six bytes for one
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode message: %w", err)
	}
	return line.Bytes(), nil
}
