package servefile

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/strictyaml"
)

// MaxBytes bounds a file.
const MaxBytes = strictyaml.MaxBytes

// Fault is one thing wrong with a file; each is an [ErrFile].
type Fault = strictyaml.Fault

// Users returns an error for a name that no user of the machine has. Nil is a server that runs as a user: all shares are
// theirs, and the file names nobody.
type Users func(name string) error

// allGPUs stands for every GPU of the machine.
const allGPUs = "all"

// Bounds of a file.
const (
	mostCores     = v1alpha1.MaxCores * v1alpha1.MaxGPUs
	mostShares    = 1024
	mostVariables = 256
)

// Parse reads a file; its name is for errors. The error joins all faults, each a [*Fault].
func Parse(name string, content []byte, users Users) (*File, error) {
	root, fault := strictyaml.Document(content)
	if fault != nil {
		fault.File, fault.Kind = name, ErrFile
		return nil, fault
	}
	r := &reader{strictyaml.Reader{File: name, Kind: ErrFile}, users, &File{Clients: map[string]Client{}}}
	if r.Version(root, "a file of a server", v1alpha1.APIVersion, Kind); len(r.Faults) == 0 {
		r.top(root)
	}
	if len(r.Faults) > 0 {
		return nil, errors.Join(r.Faults...)
	}
	r.file.Listen = cmp.Or(r.file.Listen, ":"+strconv.Itoa(Port))
	return r.file, nil
}

// reader fills a file from a tree of YAML and collects faults.
type reader struct {
	strictyaml.Reader
	users Users
	file  *File
}

// known are the fields of a mapping, each with what reads it.
type known = strictyaml.Known

// top reads the whole file.
func (r *reader) top(root *yaml.Node) {
	checked := func(*yaml.Node, string) {}
	r.Fields(root, "", known{
		"apiVersion": checked, "kind": checked,
		"listen":  func(n *yaml.Node, f string) { r.file.Listen = r.address(n, f) },
		"gpus":    func(n *yaml.Node, f string) { r.file.GPUs = r.gpus(n, f) },
		"clients": r.clients,
	})
}

// address reads where the server listens.
func (r *reader) address(node *yaml.Node, field string) string {
	text := r.text(node, field, `an address and a port, such as ":7117"`)
	if text != "" && !isAddress(text) {
		r.Fault(node, field, `%q is no address with a port, such as ":7117" or "10.0.0.5:7117"`, text)
	}
	return text
}

// isAddress reports whether a text is a host, which may be left out, and a port. An address of IPv6 stands in brackets.
func isAddress(text string) bool {
	at := strings.LastIndexByte(text, ':')
	if at < 0 {
		return false
	}
	host := text[:at]
	if inside, bracketed := strings.CutPrefix(host, "["); bracketed {
		if inside, bracketed = strings.CutSuffix(inside, "]"); !bracketed {
			return false
		}
		host = strings.ReplaceAll(inside, ":", "")
	}
	_, err := strconv.ParseUint(text[at+1:], 10, 16)
	return err == nil && !strings.ContainsAny(host, ":[]")
}

// gpuName is an index without leading zeros, or a whole UUID.
var gpuName = regexp.MustCompile(`^(0|[1-9][0-9]{0,3}|(?i:gpu)-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$`)

// gpus reads which GPUs are offered, nil for all.
func (r *reader) gpus(node *yaml.Node, field string) (names []string) {
	switch {
	case node.Kind == yaml.ScalarNode && node.Value == allGPUs:
		return nil
	case node.Kind != yaml.SequenceNode || len(node.Content) == 0:
		r.Fault(node, field, "must be %s, or a list of GPUs such as [0, 3]", allGPUs)
		return nil
	}
	for i, one := range node.Content {
		at := fmt.Sprintf("%s[%d]", field, i)
		switch {
		case one.Kind != yaml.ScalarNode || !gpuName.MatchString(one.Value):
			r.Fault(one, at, "%q is neither an index nor a whole UUID: `divvy ls` lists them", one.Value)
		case slices.ContainsFunc(names, func(has string) bool { return strings.EqualFold(has, one.Value) }):
			r.Fault(one, at, "names a GPU twice")
		default:
			names = append(names, one.Value)
		}
	}
	return names
}

// clients reads the clients.
func (r *reader) clients(node *yaml.Node, path string) {
	if node.Kind == yaml.ScalarNode && node.Tag == "!!null" {
		return // nobody yet, below the comments that say how
	}
	r.Pairs(node, path, func(key, value *yaml.Node, field string) {
		if !v1alpha1.IsName(key.Value) {
			r.Fault(key, field, "a client's name has at most 63 lower-case letters, digits, '-', '_' and '.', and begins with a letter or digit")
			return
		}
		r.file.Clients[key.Value] = r.client(key, value, field)
	})
}

// client reads one client.
func (r *reader) client(key, node *yaml.Node, path string) Client {
	c := Client{Name: key.Value}
	if node.Kind != yaml.ScalarNode || node.Tag != "!!null" { // nothing but its name, without any bound
		r.Fields(node, path, known{
			"user":        func(n *yaml.Node, f string) { c.User = r.user(n, f) },
			"memory":      func(n *yaml.Node, f string) { c.Memory = r.bytes(n, f) },
			"cores":       func(n *yaml.Node, f string) { c.Cores = r.number(n, f, mostCores) },
			"shares":      func(n *yaml.Node, f string) { c.Shares = r.number(n, f, mostShares) },
			"class":       func(n *yaml.Node, f string) { c.Class = r.class(n, f) },
			"commands":    func(n *yaml.Node, f string) { c.Commands = r.yes(n, f) },
			"environment": func(n *yaml.Node, f string) { c.Environment = r.variables(n, f) },
			"since":       func(n *yaml.Node, f string) { c.Since = r.time(n, f) },
		})
	}
	if r.users != nil && c.User == "" && len(r.Faults) == 0 {
		r.Fault(key, path+".user", "missing: the server runs as root, so say whose its shares are")
	}
	return c
}

// user reads the local user of a client.
func (r *reader) user(node *yaml.Node, field string) string {
	name := r.text(node, field, "the name of a user")
	switch {
	case name == "":
	case r.users == nil:
		r.Fault(node, field, "the server runs as a user, whose all shares are: leave it out, or run the server as root")
	default:
		if err := r.users(name); err != nil {
			r.Fault(node, field, "%v", err)
		}
	}
	return name
}

// text reads one word.
func (r *reader) text(node *yaml.Node, field, wanted string) string {
	if node.Kind != yaml.ScalarNode || node.Tag == "!!null" || node.Value == "" {
		r.Fault(node, field, "must be %s; or leave the field out", wanted)
		return ""
	}
	return node.Value
}

func (r *reader) number(node *yaml.Node, field string, most int) int {
	text := r.text(node, field, fmt.Sprintf("a whole number from 1 to %d", most))
	n, err := strconv.Atoi(text)
	if text != "" && (err != nil || n < 1 || n > most) {
		r.Fault(node, field, "%q is not a whole number from 1 to %d", text, most)
	}
	return n
}

// bytes reads an amount of memory that is no part of a GPU.
func (r *reader) bytes(node *yaml.Node, field string) uint64 {
	text := r.text(node, field, "an amount of memory such as 48Gi")
	if text == "" {
		return 0
	}
	amount, err := v1alpha1.ParseMemory(text)
	switch {
	case err != nil:
		r.Fault(node, field, "%v", err)
	case amount.InBytes() == 0:
		r.Fault(node, field, "%q: give an amount such as 48Gi: this is the sum of shares that may be on several GPUs", text)
	}
	return amount.InBytes()
}

func (r *reader) class(node *yaml.Node, field string) v1alpha1.Class {
	class := v1alpha1.Class(r.text(node, field, "online or offline"))
	if class != "" && class != v1alpha1.ClassOnline && class != v1alpha1.ClassOffline {
		r.Fault(node, field, "%q is not online or offline", class)
	}
	return class
}

func (r *reader) yes(node *yaml.Node, field string) bool {
	if node.Kind != yaml.ScalarNode || node.Tag != "!!bool" {
		r.Fault(node, field, "must be true or false")
		return false
	}
	var is bool
	return node.Decode(&is) == nil && is
}

func (r *reader) time(node *yaml.Node, field string) time.Time {
	text := r.text(node, field, "a time such as 2026-01-31T12:00:00Z")
	at, err := time.Parse(time.RFC3339, text)
	if text != "" && err != nil {
		r.Fault(node, field, "%q is no time such as 2026-01-31T12:00:00Z", text)
	}
	return at.UTC()
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*\*?$`)

// variables reads names of environment variables.
func (r *reader) variables(node *yaml.Node, field string) (names []string) {
	if node.Kind != yaml.SequenceNode || len(node.Content) > mostVariables {
		r.Fault(node, field, "must be a list of at most %d variables, such as [LANG, \"SLURM_*\"]", mostVariables)
		return nil
	}
	for i, one := range node.Content {
		if one.Kind != yaml.ScalarNode || !variableName.MatchString(one.Value) {
			r.Fault(one, fmt.Sprintf("%s[%d]", field, i), "%q is no variable's name, nor the beginning of some with a * behind", one.Value)
			continue
		}
		names = append(names, one.Value)
	}
	return names
}
