package drivers

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/driver"
)

// sources are the programs that ask.
//
//go:embed ask/*.c ask/*.py
var sources embed.FS

// build compiles one of sources.
func build(program, source string, flags ...string) error {
	text, err := sources.ReadFile("ask/" + source)
	if err != nil {
		return fmt.Errorf("read a program that asks: %w", err)
	}
	args := append([]string{"-O1", "-pthread", "-o", program, "-x", "c", "-", "-x", "none"}, append(flags, "-ldl")...)
	cc := exec.Command("cc", args...)
	cc.Stdin = bytes.NewReader(text)
	if said, err := cc.CombinedOutput(); err != nil {
		return fmt.Errorf("compile %s: %w: %s", source, err, said)
	}
	return nil
}

// Question is what a library is asked, and how many answers at least show that it was.
type Question struct {
	Library driver.Library
	// Name is one that ask/ask.c lists.
	Name  string
	Least int
}

// String names a question as tests and figures do.
func (q Question) String() string {
	return strings.TrimSuffix(q.Library.Bare(), ".so") + "/" + q.Name
}

// Questions are all that are compared.
var Questions = []Question{
	{driver.CUDA, "names", 700},
	{driver.CUDA, "lookups", 80_000},
	{driver.CUDA, "late", 80_000},
	{driver.CUDA, "errors", 2_000},
	{driver.CUDA, "status", 400},
	{driver.CUDA, "outputs", 400},
	{driver.NVML, "names", 400},
	{driver.NVML, "errors", 1_000},
	{driver.NVML, "status", 250},
	{driver.NVML, "outputs", 250},
}

// Difference is an answer that is not the driver's.
type Difference struct{ Native, Other string }

// String says it as a test's message.
func (d Difference) String() string { return fmt.Sprintf("natively %q, else %q", d.Native, d.Other) }

// Comparison is what came of one question.
type Comparison struct {
	Question
	Answers     int
	Differences []Difference
}

// add counts another comparison in, whose place stands before each difference.
func (c *Comparison) add(other Comparison, place string) {
	c.Answers += other.Answers
	for _, d := range other.Differences {
		c.Differences = append(c.Differences, Difference{d.Native, place + d.Other})
	}
}

// ErrAnswers says that two lists of answers are not of the same questions.
var ErrAnswers = errors.New("the answers cannot be compared")

// Compare asks the driver alone and in a share.
func (p *Pair) Compare(ctx context.Context, q Question) (Comparison, error) {
	native, share := filepath.Join(p.Native, string(q.Library)), filepath.Join(p.Share, string(q.Library))
	names, err := union(p.tree.Library(string(q.Library)), native)
	if err != nil {
		return Comparison{}, err
	}
	want, err := p.Ask(ctx, q.Name, names, native)
	if err != nil {
		return Comparison{}, err
	}
	got, err := p.Ask(ctx, q.Name, names, share, filepath.Join(p.Share, q.Library.Real()))
	if err != nil {
		return Comparison{}, err
	}
	return compare(q, want, got)
}

// documented are the names of the two interfaces; the debugger's own begin otherwise.
var documented = regexp.MustCompile("^(cu|nvml)[A-Z]")

// union are the documented names that one of the libraries has.
func union(libraries ...string) ([]string, error) {
	var names []string
	for _, path := range libraries {
		some, err := driver.Names(path)
		if err != nil {
			return nil, fmt.Errorf("collect names to ask for: %w", err)
		}
		for name := range some {
			if documented.MatchString(name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Ask returns a library's answers to a question about names. Where the library stands in front of the driver's, real is
// that one: a function that is handed through is told by its name there.
func (p *Pair) Ask(ctx context.Context, question string, names []string, library string, real ...string) ([]string, error) {
	program := filepath.Join(p.dir, "ask")
	if _, err := os.Stat(program); errors.Is(err, os.ErrNotExist) {
		if err := build(program, "ask.c"); err != nil {
			return nil, err
		}
	}
	cmd := exec.CommandContext(ctx, program, append([]string{question, library}, real...)...)
	cmd.Stdin = strings.NewReader(strings.Join(names, "\n") + "\n")
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Dir(library))
	var said bytes.Buffer
	cmd.Stderr = &said
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("ask %s for its %s: %w: %s", library, question, err, said.String())
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n"), nil
}

// CUDA is the version of CUDA that the driver tells, such as 12040.
func (p *Pair) CUDA(ctx context.Context) (int, error) {
	said, err := p.Ask(ctx, "version", nil, filepath.Join(p.Native, string(driver.CUDA)))
	if err != nil {
		return 0, err
	}
	cuda, err := strconv.Atoi(said[0])
	if err != nil {
		return 0, fmt.Errorf("read the driver's version of CUDA: %w", err)
	}
	return cuda, nil
}

// noStatus are functions that answer with a pointer.
var noStatus = map[string]bool{"nvmlErrorString": true}

// compare finds where two lists of answers differ. It is pure.
func compare(q Question, want, got []string) (Comparison, error) {
	if len(want) < q.Least || len(want) != len(got) {
		return Comparison{}, fmt.Errorf("%w: of %s the driver gives %d, the other %d, want %d or more", ErrAnswers, q, len(want), len(got), q.Least)
	}
	result := Comparison{Question: q, Answers: len(want)}
	for i := range want {
		name, _, _ := strings.Cut(want[i], " ")
		if want[i] == got[i] || strings.Contains(want[i], " signal ") || noStatus[name] {
			continue // what does not survive zeros natively may do as it likes
		}
		result.Differences = append(result.Differences, Difference{want[i], got[i]})
	}
	return result, nil
}
