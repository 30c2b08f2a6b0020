package agentconfig

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
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
	r := &reader{strictyaml.Reader{File: file, Kind: ErrConfig}, c}
	if r.Version(root, "a configuration", v1alpha1.APIVersion, Kind); len(r.Faults) == 0 {
		r.top(root)
	}
	return c, r.Faults
}

// reader fills a configuration from a tree of YAML and collects faults.
type reader struct {
	strictyaml.Reader
	config *Config
}

// known are the fields of a mapping, each with what reads it.
type known = strictyaml.Known

// top reads the whole configuration.
func (r *reader) top(root *yaml.Node) {
	c := r.config
	checked := func(*yaml.Node, string) {}
	r.Fields(root, "", known{
		"apiVersion": checked, "kind": checked,
		"outside":       func(n *yaml.Node, f string) { c.outside = choice(r, n, f, OutsideReport, OutsideStop, OutsideKill) },
		"defaultMemory": r.defaultMemory,
		"turnMemory":    r.turnMemory,
		"swapMemory":    r.swapMemory,
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
	r.Fields(node, field, known{
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
	r.Fields(node, field, known{
		"after":  func(n *yaml.Node, f string) { idle.After = r.duration(n, f, leastIdle) },
		"action": func(n *yaml.Node, f string) { idle.Action = choice(r, n, f, IdleReport, IdleEnd) },
	})
	if node.Kind == yaml.MappingNode && idle.After == 0 && len(r.Faults) == 0 {
		r.Fault(node, field+".after", "missing: say after how long a share is idle, such as 12h")
	}
}

// entries reads limits by the name of a user or group.
func (r *reader) entries(node *yaml.Node, path, what string, resolve func(string) (int, error), into map[int]entry) {
	r.Pairs(node, path, func(key, value *yaml.Node, field string) {
		id, ok := r.resolve(key, field, what, resolve)
		limits := r.limits(value, field)
		if !ok {
			return
		}
		if other, twice := into[id]; twice {
			r.Fault(key, field, "names the same %s as %s", what, other.field)
			return
		}
		if what == "user" && id == 0 {
			r.Fault(key, field, "root has no limits: leave it out")
			return
		}
		into[id] = entry{field, limits}
	})
}

// members reads a list of users or groups.
func (r *reader) members(node *yaml.Node, path, what string, resolve func(string) (int, error)) []int {
	if node.Kind != yaml.SequenceNode {
		r.Fault(node, path, "must be a list of %ss", what)
		return nil
	}
	var ids []int
	for i, one := range node.Content {
		field := fmt.Sprintf("%s[%d]", path, i)
		id, ok := r.resolve(one, field, what, resolve)
		switch {
		case !ok:
		case slices.Contains(ids, id):
			r.Fault(one, field, "names the same %s twice", what)
		default:
			ids = append(ids, id)
		}
	}
	return ids
}

// resolve asks the machine for the id of a user or group.
func (r *reader) resolve(node *yaml.Node, field, what string, resolve func(string) (int, error)) (id int, ok bool) {
	if node.Kind != yaml.ScalarNode || node.Value == "" {
		r.Fault(node, field, "must be the name of a %s", what)
		return 0, false
	}
	id, err := resolve(node.Value)
	if err != nil {
		r.Fault(node, field, "%v", err)
		return 0, false
	}
	return id, true
}
