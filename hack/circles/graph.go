package main

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// An edge is a dependency of one file on another, and what shows it.
type edge struct {
	from, to string
	because  string
}

// A symbol is one line of nm about an object.
type symbol struct {
	path string // of the object's source
	name string
	kind byte // nm's letter: U takes it, W defines it weakly, other letters define it
}

type report struct {
	faults          []string
	between, inside int
	folders         map[string]map[string]bool
}

var includeLine = regexp.MustCompile(`(?m)^#include "([^"]+)"`)

// includes returns an edge for each include line that names a file below lib/.
func includes(sources map[string]string) []edge {
	var edges []edge
	for _, from := range sorted(sources) {
		for _, match := range includeLine.FindAllStringSubmatch(sources[from], -1) {
			for _, to := range []string{path.Join("lib", match[1]), path.Join(path.Dir(from), match[1])} {
				if _, exists := sources[to]; exists {
					edges = append(edges, edge{from, to, "includes " + match[1]})
					break
				}
			}
		}
	}
	return edges
}

func parseSymbols(source, text string) []symbol {
	var symbols []symbol
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) >= 2 {
			kind := fields[len(fields)-2][0]
			symbols = append(symbols, symbol{source, fields[len(fields)-1], kind})
		}
	}
	return symbols
}

// taken returns an edge for each symbol that one object takes from another.
func taken(symbols []symbol) []edge {
	definitions := map[string][]symbol{}
	for _, s := range symbols {
		if s.kind != 'U' && s.kind != 'w' {
			definitions[s.name] = append(definitions[s.name], s)
		}
	}
	var edges []edge
	for _, s := range symbols {
		if s.kind != 'U' && s.kind != 'w' {
			continue
		}
		named := tables(s, definitions)
		if len(named) == 0 {
			named = definitions[s.name]
		}
		if to := owner(s, named); to != "" {
			edges = append(edges, edge{s.path, to, "takes " + s.name})
		}
	}
	return edges
}

// tables returns the definitions of a name's slot in the taker's library. The
// table of slots owns the name also where it has no jump for it, because the
// description asks for a hook: who takes the name does not know of the hook.
func tables(taker symbol, definitions map[string][]symbol) []symbol {
	var tables []symbol
	for _, slot := range definitions["dv_forward_"+taker.name] {
		if library(slot.path) == library(taker.path) {
			tables = append(tables, slot)
		}
	}
	return tables
}

// owner returns the source that a symbol is taken from, "" for a system
// library's. Several of our libraries define the same names: an object means
// its own folder's, or else that of the library it is part of. A table that
// defines a name weakly owns it also where a hook replaces it, because who
// takes the name does not know of the hook.
func owner(taker symbol, definitions []symbol) string {
	nearness := func(s symbol) int {
		switch {
		case path.Dir(s.path) == path.Dir(taker.path):
			return 0
		case library(s.path) == library(taker.path):
			return 1
		}
		return 2
	}
	best := slices.SortedFunc(slices.Values(definitions), func(a, b symbol) int {
		weak := func(s symbol) int {
			if s.kind == 'W' && library(s.path) == library(taker.path) {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(weak(a), weak(b)), cmp.Compare(nearness(a), nearness(b)), cmp.Compare(a.path, b.path))
	})
	if len(best) == 0 {
		return ""
	}
	return best[0].path
}

// library returns the folder directly below lib/.
func library(file string) string {
	return strings.SplitN(file, "/", 3)[1]
}

// judge finds the circles between folders and inside them.
func judge(edges []edge, known []circle) report {
	between := graph{}
	inside := map[string]graph{}
	for _, e := range edges {
		from, to := path.Dir(e.from), path.Dir(e.to)
		if from != to {
			between.add(from, to, e)
			continue
		}
		if inside[from] == nil {
			inside[from] = graph{}
		}
		inside[from].add(path.Base(e.from), path.Base(e.to), e)
	}
	r := report{folders: between.pairs()}
	for _, c := range between.circles() {
		r.between++
		r.faults = append(r.faults, fmt.Sprintf("folders depend on each other in a circle: %s\n%s",
			strings.Join(c, " "), between.evidence(c)))
	}
	r.judgeInside(inside, known)
	return r
}

func (r *report) judgeInside(inside map[string]graph, known []circle) {
	missing := map[string]circle{}
	for _, c := range known {
		missing[name(c.folder, c.files)] = c
	}
	for _, folder := range sorted(inside) {
		circles := inside[folder].circles()
		r.inside += len(circles)
		if len(circles) > 1 {
			r.faults = append(r.faults, fmt.Sprintf("%s: %d circles, one is the most", folder, len(circles)))
		}
		for _, c := range circles {
			if _, named := missing[name(folder, c)]; named {
				delete(missing, name(folder, c))
				continue
			}
			r.faults = append(r.faults, fmt.Sprintf("%s: files depend on each other in a circle that is not named: %s\n%s",
				folder, strings.Join(c, " "), inside[folder].evidence(c)))
		}
	}
	for _, named := range sorted(missing) {
		r.faults = append(r.faults, fmt.Sprintf("%s: this circle is named and is not there any more", named))
	}
}

func name(folder string, files []string) string {
	return folder + ": " + strings.Join(slices.Sorted(slices.Values(files)), " ")
}

// drawing lists the folders, each with those it depends on.
func (r *report) drawing() []string {
	var lines []string
	for _, from := range sorted(r.folders) {
		lines = append(lines, from+" -> "+strings.Join(sorted(r.folders[from]), " "))
	}
	return lines
}

func sorted[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
