package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// underMPS starts a daemon of the driver's service that is this test's own: its pipes lie in a folder of its own, and no
// compute mode is changed. Who already runs one keeps it.
func underMPS(t *trial) error {
	control := findProgram("nvidia-cuda-mps-control", "/usr/bin")
	if control == "" {
		return skip("nvidia-cuda-mps-control is not here")
	}
	folder := filepath.Join(t.scratch, "mps")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return fmt.Errorf("make a folder for MPS: %w", err)
	}
	vars := []string{"CUDA_MPS_PIPE_DIRECTORY=" + folder, "CUDA_MPS_LOG_DIRECTORY=" + folder}
	command, err := t.ready()
	if err != nil {
		return err
	}
	t.vars = vars
	o, err := t.call(nil, control, "-d")
	if err != nil {
		return err
	}
	if o.status != 0 {
		return skip("MPS does not start: %s", o.say())
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), killTime)
		defer cancel()
		_, _ = finish(ctx, []string{"/bin/sh", "-c", `echo quit | "$0"`, control}, append(slices.Clone(t.env), vars...), nil)
	}()
	part := func(percent int) tenant {
		return tenant{at: t.natively(), command: command, vars: append(slices.Clone(vars), fmt.Sprintf("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%d", percent))}
	}
	whole, err := t.rates(tenant{at: t.natively(), command: command, vars: vars})
	if err != nil {
		return skip("a program does not run under MPS: %s", firstLine(err.Error()))
	}
	got, err := t.rates(part(30), part(70))
	if err != nil {
		return err
	}
	t.note("MPS 30 : 70: %.1f : %.1f %% of what one gets alone", 100*got[0]/whole[0], 100*got[1]/whole[0])
	t.vars = vars
	o, err = t.call(t.share(flags{memory: t.size() / 2}), t.gpubench(), "spin", "--count", "10")
	if err == nil {
		t.note("a share under MPS: %s", strings.TrimSpace(o.how))
	}
	return err
}
