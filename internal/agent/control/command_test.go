package control

import (
	"bytes"
	"context"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestShortCommandsStay(t *testing.T) {
	for _, short := range [][]string{nil, {"python", "train.py"}, {strings.Repeat("x", commandKept-1)}} {
		if got := ShortCommand(short); !slices.Equal(got, short) {
			t.Errorf("%q became %q", short, got)
		}
	}
}

// A command line of bytes that each take six in JSON would be longer than a request may be.
func TestTheLongestCommandCanBeAskedFor(t *testing.T) {
	var got CreateParams
	socket := serve(t, map[Method]Handler{
		MethodCreate: Handle(func(_ context.Context, _ *Peer, p CreateParams) (*Created, error) {
			got = p
			return &Created{}, nil
		}),
	})
	command := slices.Repeat([]string{strings.Repeat("<", 128<<10)}, 16)
	if _, err := dial(t, socket).Create(t.Context(), CreateParams{Command: command}, nil); err != nil {
		t.Fatal(err)
	}
	if len(got.Command) != 1 || !strings.HasPrefix(got.Command[0], "<<<") {
		t.Errorf("the agent was told %d words", len(got.Command))
	}
}

// A message that one side reads is read in the same way after it was written.
func FuzzMessages(f *testing.F) {
	f.Add([]byte(`{"request":{"memory":"4Gi","cores":30},"layer":"env","command":["a\u2028b","<>"],"wait":true}`))
	f.Add([]byte(`{"id":"x","memory":"50%","cores":3,"weight":2}`))
	f.Add([]byte(`{"tenant":{"id":"a","shares":[{"uuid":"GPU-1","process":[{"pid":1,"used":2}]}]},"edits":{"env":[{"name":"A","value":"b"}]}}`))
	f.Add([]byte(`{"gpus":[{"uuid":"GPU-1","total":1}],"tenants":[{"created":"2026-01-01T00:00:00.5+01:00"}],"events":[{"kind":"reaped"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, fresh := range []func() any{
			func() any { return new(CreateParams) }, func() any { return new(SetParams) }, func() any { return new(StopParams) },
			func() any { return new(Created) }, func() any { return new(Listing) }, func() any { return new(Info) },
		} {
			first, second := fresh(), fresh()
			if decodeStrict(text, first) != nil {
				continue
			}
			line, err := encodeLine(first)
			if err != nil {
				t.Fatalf("%+v was read and cannot be written: %v", first, err)
			}
			in := newLines(bytes.NewReader(line), maxAnswer)
			if _, err := in.next(second, decodeStrict); err != nil {
				t.Fatalf("%s was written and cannot be read: %v", line, err)
			}
			again, err := encodeLine(second)
			if err != nil || !bytes.Equal(again, line) {
				t.Errorf("%T became another:\n%s\n%s\n%v", first, line, again, err)
			}
			if p, ok := first.(*CreateParams); ok && !reflect.DeepEqual(p.Request, second.(*CreateParams).Request) {
				t.Errorf("the request %+v became %+v", p.Request, second.(*CreateParams).Request)
			}
			if _, err := in.next(fresh(), decodeStrict); !errors.Is(err, io.EOF) {
				t.Errorf("one message took two lines: %v", err)
			}
		}
	})
}
