package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const (
	instructionsID = "swap.added_instructions"
	// before is the last commit without swap in the libraries.
	before = "3615b8d5"
	// branch are the instructions of a predicted branch: a load, a test and a jump.
	branch = 3
)

// counted is a call, and how many instructions it takes outside the driver.
type counted struct {
	Call  string `json:"call"`
	Least int    `json:"least"`
	Most  int    `json:"most"`
}

// instructions counts what calls of a share without swap take, and what they took before there was swap.
func instructions(ctx context.Context, o options) (rows []measurement.Row, err error) {
	old, err := builtBefore(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(old)) }()
	then, err := count(ctx, filepath.Join(old, "build", "test", "cuda", "cost"))
	if err != nil {
		return nil, err
	}
	now, err := count(ctx, filepath.Join(o.build, "test", "cuda", "steps"))
	if err != nil {
		return nil, err
	}
	for i, c := range now {
		if i >= len(then) || then[i].Call != c.Call {
			return nil, fmt.Errorf("compare %s: %w", c.Call, errNone)
		}
		r := row(instructionsID, c.Call, "", branch, measurement.Lower, []float64{float64(c.Least - then[i].Least)})
		r.Note = fmt.Sprintf("%d, and %d in commit %s: the least of 56 calls, with a driver that does nothing.", c.Least, then[i].Least, before)
		rows = append(rows, r)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("count instructions: %w", errNone)
	}
	return rows, nil
}

// builtBefore builds the library as it was, with the program that counts in another one's place, and returns where.
func builtBefore(ctx context.Context) (dir string, err error) {
	if dir, err = os.MkdirTemp("", "divvy-before-"); err != nil {
		return "", fmt.Errorf("make a folder for the version before: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	tree := exec.CommandContext(ctx, "git", "archive", before)
	var said bytes.Buffer
	tree.Stderr = &said
	text, err := tree.Output()
	if err != nil {
		return dir, fmt.Errorf("read commit %s: %w: %s", before, err, said.String())
	}
	unpack := exec.CommandContext(ctx, "tar", "-x", "-C", dir)
	unpack.Stdin = bytes.NewReader(text)
	if text, err := unpack.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("unpack commit %s: %w: %s", before, err, text)
	}
	source, err := os.ReadFile(filepath.Join("lib", "cuda", "test", "steps.c"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "lib", "cuda", "test", "cost.c"), source, 0o600)
	}
	if err != nil {
		return dir, fmt.Errorf("give the version before the program that counts: %w", err)
	}
	build := exec.CommandContext(ctx, "make", "-C", dir, "-j", fmt.Sprint(runtime.NumCPU()), "build/test/cuda/cost")
	build.Env = append(os.Environ(), "MAKEFLAGS=", "B=build")
	if text, err := build.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("build commit %s: %w: %s", before, err, text[max(0, len(text)-2000):])
	}
	return dir, nil
}

func count(ctx context.Context, program string) (all []counted, err error) {
	text, err := exec.CommandContext(ctx, program).Output()
	if err != nil {
		return nil, fmt.Errorf("count instructions: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		var c counted
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			return nil, fmt.Errorf("read how many instructions: %w: %q", err, line)
		}
		all = append(all, c)
	}
	return all, nil
}
