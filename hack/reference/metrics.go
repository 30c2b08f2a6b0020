package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

var (
	helps   = regexp.MustCompile(`(?m)^# HELP (\S+) (.*)\n# TYPE \S+ (\w+)\n(?:[^#].*\n)*`)
	sample  = regexp.MustCompile(`(?m)^\w+\{(.*)\} \S+$`)
	labelOf = regexp.MustCompile(`(?:^|,)(\w+)="`)
)

const metricsHead = "\n## %s\n\n| metric | kind | labels | meaning |\n|---|---|---|---|\n"

// metrics describes what collectors tell, by what they wrote: the files that their tests hold to the byte. The scheduler is a module of
// its own, whose collectors are read as they are declared.
func metrics(root string) (string, error) {
	var b strings.Builder
	b.WriteString("# Metrics\n\n" + made)
	b.WriteString("What Divvy tells Prometheus. [../metrics.md](../metrics.md) says who may ask, and what to ask.\n")
	for _, part := range []struct{ head, file string }{
		{"Every agent", "internal/agent/exposition/testdata/metrics.txt"},
		{"The agent on a cluster's node, beside these", "internal/agent/metrics/testdata/metrics.txt"},
		{"The webhook", "internal/webhook/testdata/metrics.txt"},
		{"The controller", "internal/controller/testdata/metrics.txt"},
		{"The scheduler extender", "internal/extender/testdata/metrics.txt"},
	} {
		text, err := os.ReadFile(filepath.Join(root, part.file))
		if err != nil {
			return "", fmt.Errorf("read what a collector wrote: %w", err)
		}
		fmt.Fprintf(&b, metricsHead, part.head)
		for _, m := range helps.FindAllStringSubmatch(string(text), -1) {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m[1], m[3], labels(m[0]), cell(m[2]))
		}
	}
	fmt.Fprintf(&b, metricsHead, "The scheduler, beside those of kube-scheduler")
	err := declaredMetrics(&b, root)
	return b.String(), err
}

// labels are those of a metric's samples, in their order.
func labels(text string) string {
	var all []string
	seen := map[string]bool{}
	for _, one := range sample.FindAllStringSubmatch(text, -1) {
		for _, m := range labelOf.FindAllStringSubmatch(one[1], -1) {
			if !seen[m[1]] && m[1] != "le" {
				seen[m[1]] = true
				all = append(all, "`"+m[1]+"`")
			}
		}
	}
	return strings.Join(all, ", ")
}

// schedulerFile declares the scheduler's collectors, whose names begin with schedulerStart.
const (
	schedulerFile  = "cmd/divvy-scheduler/program/metrics.go"
	schedulerStart = "divvy_scheduler_"
)

// errMetric is the error of a collector that is declared in a way that is not read here.
var errMetric = errors.New("a collector is declared without its name or its help as a text")

// kindOf is the kind of what a function makes. asked is the scheduler's own, of gauges.
var kindOf = map[string]string{
	"NewHistogram": "histogram", "NewHistogramVec": "histogram", "NewCounter": "counter", "NewCounterVec": "counter",
	"NewGauge": "gauge", "NewGaugeVec": "gauge", "asked": "gauge",
}

// declaredMetrics writes the scheduler's collectors.
func declaredMetrics(b *strings.Builder, root string) (err error) {
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, schedulerFile), nil, 0)
	if err != nil {
		return fmt.Errorf("read the scheduler's collectors: %w", err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		name := ""
		switch f := call.Fun.(type) {
		case *ast.Ident:
			name = f.Name
		case *ast.SelectorExpr:
			name = f.Sel.Name
		}
		kind := kindOf[name]
		if kind == "" {
			return true
		}
		told := texts(call)
		const nameAndHelp = 2
		if len(told) < nameAndHelp {
			err = fmt.Errorf("%w: %s", errMetric, name)
			return false
		}
		var labels []string
		for _, label := range told[nameAndHelp:] {
			labels = append(labels, "`"+label+"`")
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", schedulerStart+told[0], kind, strings.Join(labels, ", "), cell(told[1]))
		return true
	})
	return err
}

// texts are the texts that a call is given, also inside its options and lists: a name, a help, labels.
func texts(call *ast.CallExpr) (all []string) {
	for _, argument := range call.Args {
		ast.Inspect(argument, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if text, err := strconv.Unquote(literal.Value); err == nil {
					all = append(all, text)
				}
			}
			return true
		})
	}
	return all
}
