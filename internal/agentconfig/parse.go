package agentconfig

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/spelling"
	"github.com/divvy-gpu/divvy/internal/strictyaml"
)

// MaxBytes bounds a file: enough for an entry of each of thousands of users.
const MaxBytes = strictyaml.MaxBytes

// ErrConfig marks every error of a configuration.
var ErrConfig = errors.New("invalid agent configuration")

// Fault is one thing wrong with a file; each is an [ErrConfig].
type Fault = strictyaml.Fault

// Parse reads a configuration; file names it in errors. The error joins all faults,
// each a [*Fault]; a file of another version has that one fault.
func Parse(file string, content []byte, accounts Accounts) (*Config, error) {
	c, faults := parseAll(file, content, accounts)
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return c, nil
}

// Review is Parse and [Config.Check] at once: who corrects a file learns of all its faults.
// A machine without GPUs is one that is not known.
func Review(file string, content []byte, accounts Accounts, m Machine) (*Config, error) {
	c, faults := parseAll(file, content, accounts)
	if c != nil && m.GPUs > 0 {
		faults = append(faults, c.compare(m)...)
	}
	if len(faults) > 0 {
		return nil, inOrder(faults)
	}
	return c, nil
}

// parseAll reads what can be read of a file, and its faults.
func parseAll(file string, content []byte, accounts Accounts) (*Config, []error) {
	root, fault := strictyaml.Document(content)
	if fault != nil {
		fault.File, fault.Kind = file, ErrConfig
		return nil, []error{fault}
	}
	sum := sha256.Sum256(content)
	c := &Config{file: file, sum: hex.EncodeToString(sum[:]), accounts: accounts, users: map[int]entry{}, groups: map[int]entry{}, places: map[string]int{}}
	r := &reader{config: c}
	if r.version(root); len(r.faults) == 0 {
		r.top(root)
	}
	return c, r.faults
}

// reader fills a configuration from a tree of YAML and collects faults.
type reader struct {
	config *Config
	faults []error
}

func (r *reader) fault(at *yaml.Node, field, format string, args ...any) {
	r.faults = append(r.faults, &Fault{Kind: ErrConfig, File: r.config.file, Line: at.Line, Field: field, Problem: fmt.Sprintf(format, args...)})
}

// version checks what says how the rest is to be read.
func (r *reader) version(root *yaml.Node) {
	if root.Kind != yaml.MappingNode {
		r.fault(root, "", "a configuration is a mapping of fields")
		return
	}
	for _, want := range []struct{ field, value string }{{"apiVersion", v1alpha1.APIVersion}, {"kind", Kind}} {
		i := slices.IndexFunc(root.Content, func(n *yaml.Node) bool { return n.Value == want.field })
		switch {
		case i < 0 || i%2 != 0:
			r.fault(root, want.field, "missing: write %s", want.value)
		case root.Content[i+1].Value != want.value:
			r.fault(root.Content[i+1], want.field, "%q is not what this version of Divvy reads, which is %s", root.Content[i+1].Value, want.value)
		}
	}
}

// known are the fields of a mapping, each with what reads it.
type known map[string]func(value *yaml.Node, field string)

// fields reads a mapping whose fields are known.
func (r *reader) fields(node *yaml.Node, path string, of known) {
	names := slices.Sorted(maps.Keys(of))
	r.pairs(node, path, func(key, value *yaml.Node, field string) {
		read, ok := of[key.Value]
		if !ok {
			r.fault(key, field, "unknown field%s; known here: %s", meant(key.Value, names), strings.Join(names, ", "))
			return
		}
		read(value, field)
	})
}

// meant asks whether another of the names is meant, if one is near.
func meant(name string, names []string) string {
	if found := spelling.Nearest(name, names); found != "" {
		return ": did you mean " + found + "?"
	}
	return ""
}

// pairs calls each with every key of a mapping, its value and its path.
func (r *reader) pairs(node *yaml.Node, path string, each func(key, value *yaml.Node, field string)) {
	if node.Kind != yaml.MappingNode {
		r.fault(node, path, "must be a mapping of fields")
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		field := strings.TrimPrefix(path+"."+key.Value, ".")
		switch {
		case key.Kind != yaml.ScalarNode:
			r.fault(key, path, "a field's name is one word")
		case seen[key.Value]:
			r.fault(key, field, "given twice")
		case value.Kind == yaml.AliasNode:
			r.fault(value, field, "YAML aliases are not read: write the value")
		default:
			each(key, value, field)
		}
		seen[key.Value] = true
	}
}

// top reads the whole configuration.
func (r *reader) top(root *yaml.Node) {
	c := r.config
	checked := func(*yaml.Node, string) {}
	r.fields(root, "", known{
		"apiVersion": checked, "kind": checked,
		"outside":       func(n *yaml.Node, f string) { c.outside = choice(r, n, f, OutsideReport, OutsideStop, OutsideKill) },
		"defaultMemory": r.defaultMemory,
		"overcommit":    r.overcommit,
		"idle":          r.idle,
		"backends":      r.backends,
		"metrics":       r.metrics,
		"history":       r.history,
		"web":           r.web,
		"nics":          r.nics,
		"nicShares":     r.nicShares,
		"workers":       r.workers,
		"users":         func(n *yaml.Node, f string) { r.entries(n, f, "user", c.accounts.User, c.users) },
		"groups":        func(n *yaml.Node, f string) { r.entries(n, f, "group", c.accounts.Group, c.groups) },
		"others":        func(n *yaml.Node, f string) { c.others = &entry{f, r.limits(n, f)} },
	})
}

func (r *reader) overcommit(node *yaml.Node, field string) {
	of := &r.config.overcommit
	r.fields(node, field, known{
		"users":  func(n *yaml.Node, f string) { of.users = r.members(n, f, "user", r.config.accounts.User) },
		"groups": func(n *yaml.Node, f string) { of.groups = r.members(n, f, "group", r.config.accounts.Group) },
	})
}

// leastIdle is longer than the driver's figures are late, and than a program pauses that
// uses a GPU all the time.
const leastIdle = 5 * time.Second

func (r *reader) idle(node *yaml.Node, field string) {
	idle := &r.config.idle
	idle.Action = IdleReport
	r.fields(node, field, known{
		"after":  func(n *yaml.Node, f string) { idle.After = r.duration(n, f, leastIdle) },
		"action": func(n *yaml.Node, f string) { idle.Action = choice(r, n, f, IdleReport, IdleEnd) },
	})
	if node.Kind == yaml.MappingNode && idle.After == 0 && len(r.faults) == 0 {
		r.fault(node, field+".after", "missing: say after how long a share is idle, such as 12h")
	}
}

// entries reads limits by the name of a user or group.
func (r *reader) entries(node *yaml.Node, path, what string, resolve func(string) (int, error), into map[int]entry) {
	r.pairs(node, path, func(key, value *yaml.Node, field string) {
		id, ok := r.resolve(key, field, what, resolve)
		limits := r.limits(value, field)
		if !ok {
			return
		}
		if other, twice := into[id]; twice {
			r.fault(key, field, "names the same %s as %s", what, other.field)
			return
		}
		if what == "user" && id == 0 {
			r.fault(key, field, "root has no limits: leave it out")
			return
		}
		into[id] = entry{field, limits}
	})
}

// members reads a list of users or groups.
func (r *reader) members(node *yaml.Node, path, what string, resolve func(string) (int, error)) []int {
	if node.Kind != yaml.SequenceNode {
		r.fault(node, path, "must be a list of %ss", what)
		return nil
	}
	var ids []int
	for i, one := range node.Content {
		field := fmt.Sprintf("%s[%d]", path, i)
		id, ok := r.resolve(one, field, what, resolve)
		switch {
		case !ok:
		case slices.Contains(ids, id):
			r.fault(one, field, "names the same %s twice", what)
		default:
			ids = append(ids, id)
		}
	}
	return ids
}

// resolve asks the machine for the id of a user or group.
func (r *reader) resolve(node *yaml.Node, field, what string, resolve func(string) (int, error)) (id int, ok bool) {
	if node.Kind != yaml.ScalarNode || node.Value == "" {
		r.fault(node, field, "must be the name of a %s", what)
		return 0, false
	}
	id, err := resolve(node.Value)
	if err != nil {
		r.fault(node, field, "%v", err)
		return 0, false
	}
	return id, true
}
