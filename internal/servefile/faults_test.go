package servefile

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Each fault names the file, the line and the field.
func TestFaults(t *testing.T) {
	users := func(name string) error {
		if name == "eve" {
			return errors.New(`there is no user "eve"`)
		}
		return nil
	}
	for text, want := range map[string]string{
		"":                    "s.yaml: the file is empty",
		"- 1\n":               "s.yaml:1: a file of a server is a mapping of fields",
		"kind: ServeConfig\n": "s.yaml:1: apiVersion: missing: write divvy.dev/v1alpha1",
		"apiVersion: divvy.dev/v2\nkind: AgentConfig\n":          `s.yaml:2: kind: "AgentConfig" is not what this version of Divvy reads, which is ServeConfig`,
		head + "gpu: all\n":                                      "s.yaml:3: gpu: unknown field: did you mean gpus?; known here: ",
		head + "listen: 7117\n":                                  `s.yaml:3: listen: "7117" is no address with a port`,
		head + "listen: \":http\"\n":                             `":http" is no address with a port`,
		head + "listen: \"2001:db8::5:7117\"\n":                  "is no address with a port",
		head + "gpus: []\n":                                      "s.yaml:3: gpus: must be all, or a list of GPUs such as [0, 3]",
		head + "gpus: [0, 00]\n":                                 `s.yaml:3: gpus[1]: "00" is neither an index nor a whole UUID`,
		head + "gpus: [0, 0]\n":                                  "gpus[1]: names a GPU twice",
		head + "clients: [ada]\n":                                "clients: must be a mapping of fields",
		head + "clients: {Ada: {user: a}}\n":                     "clients.Ada: a client's name has at most 63",
		head + "clients:\n  ada: {user: a}\n  ada: {user: b}\n":  "s.yaml:5: clients.ada: given twice",
		head + "clients: {ada: }\n":                              "clients.ada.user: missing: the server runs as root",
		head + "clients: {ada: {user: eve}}\n":                   `clients.ada.user: there is no user "eve"`,
		head + "clients: {ada: {user: a, memory: 10%}}\n":        `memory: "10%": give an amount such as 48Gi`,
		head + "clients: {ada: {user: a, memory: lots}}\n":       "clients.ada.memory: ",
		head + "clients: {ada: {user: a, cores: 0}}\n":           `cores: "0" is not a whole number from 1 to`,
		head + "clients: {ada: {user: a, shares: 9999}}\n":       `shares: "9999" is not a whole number from 1 to 1024`,
		head + "clients: {ada: {user: a, class: batch}}\n":       `class: "batch" is not online or offline`,
		head + "clients: {ada: {user: a, commands: yes}}\n":      "commands: must be true or false",
		head + "clients: {ada: {user: a, environment: LANG}}\n":  "environment: must be a list",
		head + "clients: {ada: {user: a, environment: [A=B]}}\n": `environment[0]: "A=B" is no variable's name`,
		head + "clients: {ada: {user: a, since: today}}\n":       `since: "today" is no time such as`,
		head + "clients: {ada: &x {user: a}, bea: *x}\n":         "YAML aliases are not read",
	} {
		_, err := Parse("s.yaml", []byte(text), users)
		if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, ErrFile) {
			t.Errorf("%q: %v; want %s", text, err, want)
		}
	}
	for _, listen := range []string{":7117", "10.0.0.5:7117", "[2001:db8::5]:7117", "gpu1:1"} {
		if f, err := Parse("s.yaml", []byte(head+fmt.Sprintf("listen: %q\n", listen)), users); err != nil || f.Listen != listen {
			t.Errorf("%s: %v", listen, err)
		}
	}
	// A user's own server has no other users.
	if _, err := Parse("s.yaml", []byte(head+"clients: {ada: {user: a}}\n"), nil); err == nil || !strings.Contains(err.Error(), "leave it out, or run the server as root") {
		t.Error(err)
	}
	if f, err := Parse("s.yaml", []byte(head+"clients: {ada: }\n"), nil); err != nil || f.Clients["ada"].Name != "ada" {
		t.Errorf("%+v, %v", f, err)
	}
}

// A bound is passed by one byte, one core and one share; what bounds nothing is passed by nothing.
func TestPermit(t *testing.T) {
	const gib = 1 << 30
	c := Client{Name: "ada", Memory: 8 * gib, Cores: 100, Shares: 2, Class: v1alpha1.ClassOffline}
	off := v1alpha1.ClassOffline
	for name, one := range map[string]struct {
		c    Client
		w    Wish
		h    Held
		want string
	}{
		"all of it":            {c, Wish{Memory: 8 * gib, Cores: 100, Shares: 2, Class: off}, Held{}, ""},
		"what is left":         {c, Wish{Memory: 2 * gib, Cores: 40, Shares: 1, Class: off}, Held{6 * gib, 60, 1}, ""},
		"a byte more":          {c, Wish{Memory: 2*gib + 1, Shares: 1, Class: off}, Held{6 * gib, 0, 1}, "client ada may have 8Gi of memory, and asks for 2147483649 while it has 6Gi"},
		"a core more":          {c, Wish{Cores: 41, Shares: 1, Class: off}, Held{0, 60, 1}, "client ada may have 100 cores, and asks for 41 while it has 60"},
		"a share more":         {c, Wish{Shares: 2, Class: off}, Held{Shares: 1}, "client ada may have 2 shares, and asks for 2 while it has 1"},
		"another class":        {c, Wish{Shares: 1, Class: v1alpha1.ClassOnline}, Held{}, "shares of class offline, and this one would be online: add --class offline"},
		"more than there is":   {c, Wish{Memory: math.MaxUint64, Shares: 1, Class: off}, Held{}, "8Gi of memory"},
		"bounds were lessened": {c, Wish{Memory: 1, Shares: 1, Class: off}, Held{Memory: 9 * gib}, "while it has 9Gi"},
		"overcommit":           {Client{Name: "bea"}, Wish{Overcommit: true}, Held{}, "leave out --overcommit"},
		"no bounds":            {Client{Name: "bea"}, Wish{Memory: math.MaxUint64, Cores: math.MaxInt, Shares: math.MaxInt}, Held{math.MaxUint64, 5, 5}, ""},
	} {
		err := Permit(one.c, one.w, one.h)
		bounds := new(BoundsError)
		if (err == nil) != (one.want == "") || err != nil && (!errors.As(err, &bounds) || !strings.Contains(err.Error(), one.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What Left tells is what Permit permits, and nothing more.
func TestLeft(t *testing.T) {
	c := Client{Memory: 100, Cores: 50, Shares: 3}
	for held := range 120 {
		h := Held{uint64(held), held, held}
		left := c.Left(h)
		if err := Permit(c, Wish{Memory: *left.Memory, Cores: *left.Cores, Shares: *left.Shares}, h); err != nil {
			t.Errorf("%d: %v", held, err)
		}
		for _, w := range []Wish{{Memory: *left.Memory + 1}, {Cores: *left.Cores + 1}, {Shares: *left.Shares + 1}} {
			if err := Permit(c, w, h); err == nil {
				t.Errorf("%d: %+v is permitted", held, w)
			}
		}
	}
	if left := (Client{}).Left(Held{1, 1, 1}); left != (Rest{}) {
		t.Errorf("%+v", left)
	}
}

func TestWishOf(t *testing.T) {
	request := func(memory v1alpha1.Memory, gpus, cores int, class v1alpha1.Class) v1alpha1.ShareRequest {
		r := v1alpha1.ShareRequest{GPUs: gpus, Memory: memory, Cores: cores}
		r.Class = class
		r.Default()
		return r
	}
	for want, r := range map[Wish]v1alpha1.ShareRequest{
		{Memory: 16, Cores: 60, Shares: 2, Class: "online"}:   request(v1alpha1.Bytes(8), 2, 30, ""),
		{Memory: 5 << 30, Shares: 1, Class: "offline"}:        request(v1alpha1.Percent(50), 1, 30, "offline"),
		{Memory: 10 << 30, Shares: 1, Class: "online"}:        request(v1alpha1.Memory{}, 0, 0, ""),
		{Memory: math.MaxUint64, Shares: 64, Class: "online"}: request(v1alpha1.Bytes(math.MaxUint64/2), 64, 0, ""),
	} {
		if got := WishOf(r, 10<<30); got != want {
			t.Errorf("%+v: %+v, want %+v", r, got, want)
		}
	}
}

func TestAdmitted(t *testing.T) {
	since := time.Unix(1000, 0)
	f := &File{Clients: map[string]Client{"ada": {Name: "ada", Since: since}}}
	if c, err := f.Admitted("ada", since); err != nil || c.Name != "ada" {
		t.Errorf("%+v, %v", c, err)
	}
	for name, issued := range map[string]time.Time{"ada": since.Add(-time.Second), "bea": since} {
		if _, err := f.Admitted(name, issued); !errors.Is(err, ErrClient) || !strings.Contains(err.Error(), fmt.Sprintf("divvy serve admit %s", name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(head + "listen: \":7117\"\ngpus: [0]\nclients: {ada: {user: ada, memory: 48Gi, since: 2026-01-31T12:00:00Z}}\n"))
	f.Add(Template(true))
	f.Fuzz(func(t *testing.T, content []byte) {
		file, err := Parse("f", content, anybody)
		if (file == nil) == (err == nil) || err != nil && !errors.Is(err, ErrFile) {
			t.Errorf("%+v, %v", file, err)
		}
	})
}
