package control

import (
	"context"
	"reflect"
	"testing"
	"unicode/utf8"

	"github.com/divvy-gpu/divvy/internal/edits"
)

// strange are paths that are no text, or nearly none.
var strange = []string{"", "/lib", "/\xff\xfe/lib", "/caf\xe9", "/é\x80", "\xf4\x8f\xbf\xbf", "/\U0010FF80x\U0010FFFF", "/\uFFFD", "\xed\xa0\x80", "/a\nb", "/a:b"}

// What an asker and an agent tell each other of paths arrives byte for byte.
func TestPathsArriveAsTheyAre(t *testing.T) {
	var got CreateParams
	made := &Created{Edits: edits.Edits{Env: []edits.Env{{Name: "LD_LIBRARY_PATH", Value: strange[2], Prepend: true}}}}
	for i, path := range strange {
		made.Edits.Binds = append(made.Edits.Binds, edits.Bind{Source: path, Target: strange[len(strange)-1-i], ReadOnly: true})
	}
	socket := serve(t, map[Method]Handler{
		MethodCreate: Handle(func(_ context.Context, _ *Peer, p CreateParams) (*Created, error) {
			got = p
			return made, nil
		}),
	})
	c := dial(t, socket)
	created, err := c.Create(t.Context(), CreateParams{LibraryPath: strange}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.LibraryPath, strange) {
		t.Errorf("the agent got %q, want %q", got.LibraryPath, strange)
	}
	if !reflect.DeepEqual(created.Edits, made.Edits) {
		t.Errorf("the asker got %+v, want %+v", created.Edits, made.Edits)
	}
}

func FuzzExact(f *testing.F) {
	for _, path := range strange {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		text := written(path)
		if got := read(text); got != path || !utf8.ValidString(text) {
			t.Errorf("%q became %q and then %q", path, text, got)
		}
		if utf8.ValidString(path) && len(path) > 0 && text != path {
			for _, r := range path {
				if isByte(r) {
					return
				}
			}
			t.Errorf("%q is text and was changed to %q", path, text)
		}
	})
}
