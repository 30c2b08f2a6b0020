package main

import (
	"fmt"
	"slices"
	"strings"
)

// A graph holds, for each node and each node that it depends on, what shows it.
type graph map[string]map[string][]edge

func (g graph) add(from, to string, e edge) {
	if from == to {
		return
	}
	if g[from] == nil {
		g[from] = map[string][]edge{}
	}
	g[from][to] = append(g[from][to], e)
}

func (g graph) pairs() map[string]map[string]bool {
	pairs := map[string]map[string]bool{}
	for from, tos := range g {
		pairs[from] = map[string]bool{}
		for to := range tos {
			pairs[from][to] = true
		}
	}
	return pairs
}

// circles returns the largest sets of nodes that all reach each other.
func (g graph) circles() [][]string {
	reach := map[string]map[string]bool{}
	for from := range g {
		reach[from] = map[string]bool{}
		g.walk(from, reach[from])
	}
	var circles [][]string
	seen := map[string]bool{}
	for _, from := range sorted(g) {
		if seen[from] || !reach[from][from] {
			continue
		}
		var members []string
		for _, to := range sorted(reach[from]) {
			if reach[to][from] {
				members = append(members, to)
				seen[to] = true
			}
		}
		circles = append(circles, members)
	}
	return circles
}

// walk notes every node that can be reached from a node in one step or more.
func (g graph) walk(from string, reached map[string]bool) {
	for to := range g[from] {
		if !reached[to] {
			reached[to] = true
			g.walk(to, reached)
		}
	}
}

// evidence says for each step inside a circle what shows it.
func (g graph) evidence(members []string) string {
	var lines []string
	for _, from := range members {
		for _, to := range sorted(g[from]) {
			if slices.Contains(members, to) {
				e := g[from][to][0]
				lines = append(lines, fmt.Sprintf("    %s -> %s: %s %s", from, to, e.from, e.because))
			}
		}
	}
	return strings.Join(lines, "\n")
}
