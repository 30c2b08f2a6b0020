package servefile

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

func TestTemplate(t *testing.T) {
	for _, root := range []bool{false, true} {
		f, err := Parse("serve.yaml", Template(root), nil)
		if err != nil || len(f.Clients) != 0 || f.Listen != ":7117" || f.GPUs != nil {
			t.Errorf("%+v, %v", f, err)
		}
		// The comments say what is read: without their marks they are a client.
		var users Users
		if root {
			users = anybody
		}
		lines := strings.SplitAfter(string(Template(root)), "\n")
		var text strings.Builder
		for i, line := range lines {
			if strings.HasPrefix(line, "#   ada:") {
				text.WriteString(strings.Join(lines[:i], "") + "clients:\n")
			}
			if text.Len() > 0 && strings.HasPrefix(line, "# ") {
				text.WriteString(line[1:])
			}
		}
		f, err = Parse("serve.yaml", []byte(text.String()), users)
		want := Client{Name: "ada", Memory: 48 << 30, Cores: 100, Shares: 4, Class: v1alpha1.ClassOffline, Commands: true,
			Environment: []string{"LANG"}, Since: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)}
		if root {
			want.User = "ada"
		}
		if err != nil || !reflect.DeepEqual(f.Clients["ada"], want) {
			t.Errorf("%v: %+v\n%s", err, f, text.String())
		}
	}
}

func TestAdmit(t *testing.T) {
	ada := Client{Name: "ada", User: "ada", Memory: 8 << 30}
	for name, c := range map[string]struct{ before, after string }{
		"nobody":          {"clients:\n", "clients:\n  ada: {user: ada, memory: 8Gi}\n"},
		"no field":        {"listen: \":1\"\n", "listen: \":1\"\nclients:\n  ada: {user: ada, memory: 8Gi}\n"},
		"no end of line":  {"clients:", "clients:\n  ada: {user: ada, memory: 8Gi}\n"},
		"empty braces":    {"clients: {}\n# end\n", "clients:\n  ada: {user: ada, memory: 8Gi}\n# end\n"},
		"braces":          {"clients: {bea: {user: bea,\n  cores: 3}}\ngpus: all\n", "clients:\n  bea: {user: bea, cores: 3}\n  ada: {user: ada, memory: 8Gi}\ngpus: all\n"},
		"behind others":   {"clients:\n    # the first\n    bea:\n        user: bea # she\n\n# the GPUs\ngpus: all\n", "clients:\n    # the first\n    bea:\n        user: bea # she\n    ada: {user: ada, memory: 8Gi}\n\n# the GPUs\ngpus: all\n"},
		"again":           {"clients:\n  # her\n  ada: {user: eve} # until May\n  bea: {user: b}\n", "clients:\n  # her\n  ada: {user: ada, memory: 8Gi} # until May\n  bea: {user: b}\n"},
		"again, as lines": {"clients:\n  ada:\n    # more later\n    memory: 1Gi # little\n    user: ada\n  # next\n  bea: {user: b}\n", "clients:\n  # more later\n  # little\n  ada: {user: ada, memory: 8Gi}\n  # next\n  bea: {user: b}\n"},
	} {
		after, err := Admit([]byte(head+c.before), ada, anybody)
		if err != nil || string(after) != head+c.after {
			t.Errorf("%s: %v\n%s", name, err, after)
		}
	}
	for _, text := range []string{"{apiVersion: divvy.dev/v1alpha1, kind: ServeConfig}", head + "clients: ~\n"} {
		if after, err := Admit([]byte(text), ada, anybody); !errors.Is(err, ErrFile) || !errors.Is(err, errEdit) {
			t.Errorf("%s: %v\n%s", text, err, after)
		}
	}
}

// What no client can have is told by the name of its field, not as a place in a text that nobody has seen.
func TestAdmitJudges(t *testing.T) {
	for want, c := range map[string]Client{
		"client ada: user: missing":                                 {Name: "ada"},
		"client ada: class: \"x\"":                                  {Name: "ada", User: "ada", Class: "x"},
		"client ada: environment[0]: \"a b\" is no variable's name": {Name: "ada", User: "ada", Environment: []string{"a b"}},
	} {
		if _, err := Admit([]byte(head+"clients:\n"), c, anybody); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, not %s", err, want)
		}
	}
}

func TestExpel(t *testing.T) {
	for name, c := range map[string]struct{ before, after string }{
		"the only one": {"clients:\n  ada: {user: a}\n", "clients:\n"},
		"the first":    {"clients:\n  ada:\n    user: a\n\n  # next\n  bea: {user: b}\n", "clients:\n\n  # next\n  bea: {user: b}\n"},
		"the last":     {"clients:\n  bea: {user: b}\n  ada: {user: a}\n# end\n", "clients:\n  bea: {user: b}\n# end\n"},
		"in braces":    {"clients: {ada: {user: a}, bea: {user: b}}\n", "clients:\n  bea: {user: b}\n"},
	} {
		after, err := Expel([]byte(head+c.before), "ada", anybody)
		if err != nil || string(after) != head+c.after {
			t.Errorf("%s: %v\n%s", name, err, after)
		}
	}
	if _, err := Expel([]byte(head), "ada", anybody); err == nil || !strings.Contains(err.Error(), "there is no client ada") {
		t.Error(err)
	}
}

// drawn is a client with drawn bounds.
func drawn(r *rand.Rand, name string) Client {
	c := Client{Name: name, User: []string{"ada", "null", "1", "a: b", "é\t#"}[r.IntN(5)]}
	if r.IntN(2) == 0 {
		c.Memory, c.Cores = r.Uint64N(1<<44)+1, r.IntN(mostCores)+1
	}
	if r.IntN(2) == 0 {
		c.Shares, c.Class = r.IntN(mostShares)+1, []v1alpha1.Class{v1alpha1.ClassOnline, v1alpha1.ClassOffline}[r.IntN(2)]
	}
	if r.IntN(2) == 0 {
		c.Commands, c.Environment = true, []string{"LANG", "SLURM_*"}[:r.IntN(2)+1]
	}
	if r.IntN(2) == 0 {
		c.Since = time.Unix(r.Int64N(1<<33), r.Int64N(1e9)).UTC()
	}
	return c
}

// However clients come, change and go, the file has those that are there, and every comment of its beginning.
func TestEdits(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		text, want := Template(true), map[string]Client{}
		if r.IntN(2) == 0 {
			text = append(text, "# at the end\n"...)
		}
		comments := strings.Count(string(text), "#")
		for range 12 {
			name := fmt.Sprintf("c%d", r.IntN(5))
			var err error
			before := text
			if _, there := want[name]; there && r.IntN(2) == 0 {
				delete(want, name)
				text, err = Expel(text, name, anybody)
			} else {
				c := drawn(r, name)
				text, err = Admit(text, c, anybody)
				c.Since = c.Since.Truncate(time.Second)
				want[name] = c
			}
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, before)
			}
			f, err := Parse("serve.yaml", text, anybody)
			if err != nil || !reflect.DeepEqual(f.Clients, want) || strings.Count(string(text), "#") < comments {
				t.Fatalf("%s: %v, %+v\n%s", name, err, f, text)
			}
		}
	}
}

func FuzzEdit(f *testing.F) {
	f.Add([]byte(head+"clients:\n  ada: {user: a} # b\n  bea:\n    user: \"b\n      # c\"\n"), "ada")
	f.Add(Template(true), "bea")
	f.Fuzz(func(t *testing.T, content []byte, name string) {
		if !v1alpha1.IsName(name) {
			t.Skip("no client can have this name")
		}
		before, err := Parse("f", content, anybody)
		if err != nil {
			return
		}
		after, err := Admit(content, Client{Name: name, User: "u"}, anybody)
		if err != nil {
			if !errors.Is(err, ErrFile) {
				t.Error(err)
			}
			return
		}
		got, err := Parse("f", after, anybody)
		if err != nil || got.Clients[name].User != "u" {
			t.Errorf("%v\n%s", err, after)
		}
		if without, err := Expel(after, name, anybody); err == nil {
			got, err := Parse("f", without, anybody)
			delete(before.Clients, name)
			if err != nil || !reflect.DeepEqual(got.Clients, before.Clients) {
				t.Errorf("%v\n%s", err, without)
			}
		}
	})
}
