package servefile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// errEdit marks a file that is written in a way that nobody but its writer can change.
var errEdit = errors.New("edit it by hand")

// fieldClients is the field below which the clients are.
const fieldClients = "clients"

// Template is a file without clients, with comments that say what there is.
func Template(root bool) []byte {
	user := ""
	if root {
		user = "\n#     user: ada             # the local user whose its shares are, and as whom its commands run; never left out"
	}
	return []byte(`# What programs of other machines may have of this machine's GPUs. ` + "`divvy serve`" + ` reads this file
# again when it has changed. ` + "`divvy serve admit NAME`" + ` adds a client, ` + "`divvy serve expel NAME`" + ` takes it out.
apiVersion: ` + v1alpha1.APIVersion + `
kind: ` + Kind + `

# Where the server listens: an address and a port, or a port alone for every address.
listen: ":` + strconv.Itoa(Port) + `"

# Which GPUs it offers: all, or a list of indexes and UUIDs such as [0, 3].
gpus: all

# Who may connect, by the name in the client's certificate. What is left out bounds nothing:
#   ada:` + user + `
#     memory: 48Gi          # of all its shares together
#     cores: 100            # guaranteed to all its shares together, in percent of one GPU's time
#     shares: 4             # how many at once
#     class: offline        # the class that they have: online or offline
#     commands: true        # whether it may run commands here (divvy run --on), not only use the GPUs
#     environment: [LANG]   # variables that these may bring along; "SLURM_*" is all that begin so
#     since: 2026-01-31T12:00:00Z # certificates that were made before do not count
clients:
`)
}

// Admit returns a file with a client, in place of one of the same name. All else stays as it is written, comments too.
func Admit(content []byte, c Client, users Users) ([]byte, error) {
	c.Since = c.Since.UTC().Truncate(time.Second)
	if err := c.judged(users); err != nil {
		return nil, err
	}
	return edit(content, users, func(clients map[string]Client) { clients[c.Name] = c }, func(d *document) error {
		if at := d.find(c.Name); at >= 0 {
			return d.change(at, c)
		}
		return d.add(c)
	})
}

// Expel returns a file without a client, which is in it. All else stays as it is written.
func Expel(content []byte, name string, users Users) ([]byte, error) {
	return edit(content, users, func(clients map[string]Client) { delete(clients, name) }, func(d *document) error {
		at := d.find(name)
		if at < 0 {
			return fmt.Errorf("%w: there is no client %s", ErrFile, name)
		}
		return d.remove(at)
	})
}

// edit changes the text of a file, and has it read again: nothing but what was meant may have changed.
func edit(content []byte, users Users, meant func(map[string]Client), apply func(*document) error) ([]byte, error) {
	want, err := Parse("", content, users)
	if err != nil {
		return nil, err
	}
	want.Clients = maps.Clone(want.Clients)
	meant(want.Clients)
	d, err := newDocument(content)
	if err != nil {
		return nil, err
	}
	if err := apply(d); err != nil {
		return nil, err
	}
	edited := []byte(strings.Join(d.lines, ""))
	got, err := Parse("", edited, users)
	if err != nil {
		return nil, fmt.Errorf("%w: %w: %w", ErrFile, errEdit, err)
	}
	if !reflect.DeepEqual(got, want) {
		return nil, fmt.Errorf("%w: it is written in a way that cannot be changed here: %w", ErrFile, errEdit)
	}
	return edited, nil
}

// document is a file as its lines and as its tree.
type document struct {
	lines []string
	// clients is the value of the field, keyAt the field's line from 0; nil and -1 if it is not there.
	clients *yaml.Node
	keyAt   int
	// next is the line of the field behind clients, or the number of lines.
	next int
}

func newDocument(content []byte) (*document, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(content, &root); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	if len(content) > 0 && !bytes.HasSuffix(content, []byte("\n")) {
		content = append(slices.Clone(content), '\n')
	}
	d := &document{lines: slices.Collect(strings.Lines(string(content))), keyAt: -1}
	d.next = len(d.lines)
	top := root.Content[0]
	if top.Style&yaml.FlowStyle != 0 {
		return nil, fmt.Errorf("%w: it is one line: %w", ErrFile, errEdit)
	}
	for i := 0; i+1 < len(top.Content); i += 2 {
		switch {
		case top.Content[i].Value == fieldClients:
			d.clients, d.keyAt = top.Content[i+1], top.Content[i].Line-1
		case d.clients != nil && d.next == len(d.lines):
			d.next = top.Content[i].Line - 1
		}
	}
	if d.clients != nil && d.clients.Kind == yaml.MappingNode && d.clients.Style&yaml.FlowStyle != 0 {
		return d, d.unfold()
	}
	return d, nil
}

// unfold writes clients that stand in braces as lines.
func (d *document) unfold() error {
	lines := []string{fieldClients + ":\n"}
	for i := 0; i+1 < len(d.clients.Content); i += 2 {
		value := d.clients.Content[i+1]
		value.Style = yaml.FlowStyle
		text, err := yaml.Marshal(value)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrFile, err)
		}
		lines = append(lines, "  "+d.clients.Content[i].Value+": "+strings.TrimSpace(string(text))+"\n")
	}
	end := d.endOf(d.next)
	again, err := newDocument([]byte(strings.Join(slices.Concat(d.lines[:d.keyAt], lines, d.lines[end:]), "")))
	if err == nil {
		*d = *again
	}
	return err
}

// find is the place of a client's name among the clients, -1 if it is not there.
func (d *document) find(name string) int {
	if d.clients != nil {
		for i := 0; i+1 < len(d.clients.Content); i += 2 {
			if d.clients.Content[i].Value == name {
				return i
			}
		}
	}
	return -1
}

// endOf is the line behind the last one before a line that is more than a comment.
func (d *document) endOf(line int) int {
	for line > 0 {
		text := strings.TrimSpace(d.lines[line-1])
		if text != "" && !strings.HasPrefix(text, "#") {
			break
		}
		line--
	}
	return line
}

// add writes a client behind the others.
func (d *document) add(c Client) error {
	text, err := c.text()
	if err != nil {
		return err
	}
	if d.clients == nil {
		d.lines = append(d.lines, fieldClients+":\n", "  "+c.Name+": "+text+"\n")
		return nil
	}
	indent := "  "
	if len(d.clients.Content) > 0 {
		indent = strings.Repeat(" ", d.clients.Content[0].Column-1)
	}
	d.lines = slices.Insert(d.lines, max(d.endOf(d.next), d.keyAt+1), indent+c.Name+": "+text+"\n")
	return nil
}

// ends is the line behind a client's.
func (d *document) ends(at int) int {
	if at+2 < len(d.clients.Content) {
		return d.endOf(d.clients.Content[at+2].Line - 1)
	}
	return d.endOf(d.next)
}

// change writes a client in the place of the one there. Comments in it stay above it, one behind it in its line there.
func (d *document) change(at int, c Client) error {
	text, err := c.text()
	if err != nil {
		return err
	}
	key, value := d.clients.Content[at], d.clients.Content[at+1]
	begin, end := key.Line-1, d.ends(at)
	indent := strings.Repeat(" ", key.Column-1)
	var kept []string
	for _, line := range d.lines[begin:end] {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "#") {
			kept = append(kept, indent+line+"\n")
		}
	}
	for _, field := range value.Content {
		if field.LineComment != "" {
			kept = append(kept, indent+field.LineComment+"\n")
		}
	}
	comment := ""
	if has := cmp.Or(key.LineComment, value.LineComment); has != "" {
		comment = " " + has
	}
	d.lines = slices.Replace(d.lines, begin, end, append(kept, indent+key.Value+": "+text+comment+"\n")...)
	return nil
}

// remove takes a client out.
func (d *document) remove(at int) error {
	d.lines = slices.Delete(d.lines, d.clients.Content[at].Line-1, d.ends(at))
	return nil
}

// judged returns why no file can have such a client, by the names of its fields.
func (c Client) judged(users Users) error {
	text, err := c.text()
	if err != nil {
		return err
	}
	alone := "apiVersion: " + v1alpha1.APIVersion + "\nkind: " + Kind + "\n" + fieldClients + ":\n  " + c.Name + ": " + text + "\n"
	_, err = Parse("", []byte(alone), users)
	fault := new(Fault)
	if errors.As(err, &fault) {
		return fmt.Errorf("client %s: %s: %s", c.Name, strings.TrimPrefix(fault.Field, fieldClients+"."+c.Name+"."), fault.Problem)
	}
	return err
}

// text is a client as it is written, without its name.
func (c Client) text() (string, error) {
	node := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
	put := func(name string, value any, given bool) {
		if !given {
			return
		}
		var one yaml.Node
		if err := one.Encode(value); err == nil { // texts, numbers, truths and lists of texts are always written
			if one.Kind == yaml.SequenceNode {
				one.Style = yaml.FlowStyle
			}
			node.Content = append(node.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, &one)
		}
	}
	put("user", c.User, c.User != "")
	put("memory", v1alpha1.FormatBytes(c.Memory), c.Memory > 0)
	put("cores", c.Cores, c.Cores > 0)
	put("shares", c.Shares, c.Shares > 0)
	put("class", string(c.Class), c.Class != "")
	put("commands", true, c.Commands)
	put("environment", c.Environment, len(c.Environment) > 0)
	put("since", c.Since, !c.Since.IsZero())
	text, err := yaml.Marshal(node)
	if err != nil {
		return "", fmt.Errorf("write client %s: %w", c.Name, err)
	}
	return strings.TrimSpace(string(text)), nil
}
