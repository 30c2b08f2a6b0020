package webpage

import (
	"bytes"
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/divvy-gpu/divvy/internal/overview"
)

// pages are the templates, parsed when the first page is made: every command has this package.
var pages = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"name": name, "note": note, "size": size, "known": sizeIfKnown, "dash": orDash, "moment": moment, "clock": clock, "exact": exact,
		"count": count, "span": span, "percent": percent, "whole": whole,
	}).ParseFS(assets, "assets/*.tmpl"))
})

// content is what the templates show of a rendering.
type content struct {
	*overview.Overview
	Config Config
	// Reader is the reader's name where the whole page is rendered, Named whether there is one.
	Reader string
	Named  bool
	// Node is the one that is shown, nil where all are listed.
	Node *overview.Node
	// Name is the node's that was asked for, "" for the first page. Root leads from the page to where the first one is.
	Name, Root string
	Missing    bool
	Tag        string
	Rows       []nodeRow
	GPUs       []gpuRow
	Totals     overview.Totals
	Part       template.HTML
}

// nodeRow is a node as the table of a cluster's has it.
type nodeRow struct {
	Name string
	// Path is that of its page, "" for a name that no node can have.
	Path, Models string
	overview.Totals
}

// gpuRow is a GPU with the words for it.
type gpuRow struct {
	*overview.GPU
	// ID is of the GPU's details, Label what the table calls it.
	ID, Label, Kind string
}

// render makes the part of a page that changes.
func (s *Site) render(n *rendering) ([]byte, error) {
	c := s.content(n)
	n.missing = c.Missing
	return execute("part", c)
}

// frame makes the whole page around its part.
func (s *Site) frame(n *rendering, reader string) ([]byte, error) {
	c := s.content(n)
	c.Reader = reader
	c.Part = template.HTML(n.part.plain) //nolint:gosec // a template made it
	return execute("page", c)
}

func execute(name string, c *content) ([]byte, error) {
	var out bytes.Buffer
	if err := pages().ExecuteTemplate(&out, name, c); err != nil {
		return nil, fmt.Errorf("render a web page: %w", err)
	}
	return out.Bytes(), nil
}

func (s *Site) content(n *rendering) *content {
	c := &content{Overview: n.shown, Config: s.config, Named: n.key.named, Name: n.key.node, Tag: n.tag}
	switch {
	case n.key.node != "":
		c.Root = "../"
		c.Node = n.shown.Node(n.key.node)
		c.Missing = c.Node == nil
	case !s.config.Cluster && len(n.shown.Nodes) > 0:
		c.Node = &n.shown.Nodes[0]
	}
	if c.Node != nil {
		c.Totals = c.Node.Totals()
		for i := range c.Node.GPUs {
			c.GPUs = append(c.GPUs, rowOf(&c.Node.GPUs[i], i))
		}
		return c
	}
	c.Totals = n.shown.Totals()
	for i := range n.shown.Nodes {
		node := &n.shown.Nodes[i]
		row := nodeRow{Name: node.Name, Models: modelsOf(node), Totals: node.Totals()}
		if len(node.Name) <= longestView-len("node/") {
			row.Path = "node/" + url.PathEscape(node.Name)
		}
		c.Rows = append(c.Rows, row)
	}
	return c
}

func rowOf(g *overview.GPU, at int) gpuRow {
	row := gpuRow{GPU: g, ID: "gpu-" + strconv.Itoa(at), Label: strconv.Itoa(at), Kind: name(g.Model)}
	if g.Index != nil {
		row.Label = strconv.Itoa(*g.Index)
	}
	if g.Profile != "" {
		row.Kind = strings.TrimSpace(row.Kind + " " + name(g.Profile))
	}
	return row
}

// modelsOf names the models of a node's GPUs, with how many there are of each.
func modelsOf(n *overview.Node) string {
	counted := map[string]int{}
	var models []string
	for i := range n.GPUs {
		model := strings.TrimSpace(name(n.GPUs[i].Model) + " " + name(n.GPUs[i].Profile))
		if counted[model]++; counted[model] == 1 {
			models = append(models, model)
		}
	}
	slices.Sort(models)
	for i, model := range models {
		models[i] = strconv.Itoa(counted[model]) + " × " + orDash(model)
	}
	return note(strings.Join(models, ", "))
}
