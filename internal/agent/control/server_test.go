package control

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// A result that cannot be encoded is an error for who asked, and not the end of the connection.
func TestResultThatCannotBeEncoded(t *testing.T) {
	c := dial(t, serve(t, map[Method]Handler{
		MethodList: Handle(func(context.Context, *Peer, struct{}) (func(), error) { return func() {}, nil }),
		MethodStop: Handle(func(context.Context, *Peer, StopParams) (struct{}, error) { return struct{}{}, nil }),
	}))
	if _, err := c.List(t.Context()); err == nil || CodeOf(err) != CodeInternal || !strings.Contains(err.Error(), "unsupported type") {
		t.Errorf("got %v", err)
	}
	if err := c.Stop(t.Context(), StopParams{}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// What agents answer is taken apart as JSON says, whether its result is read or not.
func TestResponsesAreDecoded(t *testing.T) {
	for line, want := range map[string]response{
		`{"id":7,"result":{"a":"}"}}`:                    {ID: 7, Result: json.RawMessage(`{"a":"}"}`)},
		`{"id":18446744073709551615,"result":null}`:      {ID: 1<<64 - 1, Result: json.RawMessage(`null`)},
		`{"id":7,"error":{"code":"x","message":"no"}}`:   {ID: 7, Error: &Error{Code: "x", Message: "no"}},
		`{"id":7,"progress":{"result":1}}`:               {ID: 7, Progress: json.RawMessage(`{"result":1}`)},
		`{"result":1,"id":7}`:                            {ID: 7, Result: json.RawMessage(`1`)},
		`{"error":{"message":"x"},"id":7,"result":null}`: {ID: 7, Error: &Error{Message: "x"}, Result: json.RawMessage(`null`)},
	} {
		var got response
		if err := decodeResponse([]byte(line), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", line, got, err)
		}
	}
	for _, line := range []string{"", "{", `{"id":7,"result":`, `{"id":-7,"result":1}`, `{"id":7,"result":1`} {
		if err := decodeResponse([]byte(line), new(response)); err == nil {
			t.Errorf("%q is a response", line)
		}
	}
}
