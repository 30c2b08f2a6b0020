// Package simfiles names the files of simulated machines, for all who look for
// them. It is all that the product knows of the simulator: it imports nothing,
// and nothing of what makes, describes or reads machines.
package simfiles

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Link is the name of a symbolic link beside a library of ours. It leads to the
// instance whose driver that library stands in front of.
const Link = "simgpu"

// TenantLink is the name of a symbolic link beside [Link]. Its target is the id
// of the tenant, where the directory's name does not tell it.
const TenantLink = "simgpu-tenant"

// Variable is the environment variable that leads a simulated driver to its
// instance where no link does.
const Variable = "DIVVY_SIMGPU"

// Instances is the directory of a run directory that holds an instance's
// directory for each simulated machine.
func Instances(rundir string) string { return filepath.Join(rundir, "simgpu") }

// Instance is the directory of an instance in a run directory, given its name
// or its directory elsewhere.
func Instance(rundir, instance string) string {
	return filepath.Join(Instances(rundir), filepath.Base(instance))
}

// Library is the simulated driver's library of that soname in an installation.
func Library(prefix, soname string) string {
	return filepath.Join(prefix, "lib", "simgpu", soname)
}

// Sysfs is an instance's stand-in for /sys: what it would tell of the machine's
// PCI devices, RDMA adapters and NUMA nodes, which the real /sys does not have.
func Sysfs(instance string) string { return filepath.Join(instance, "sys") }

// Devices is an instance's stand-in for /dev: a file nvidia<minor> for each GPU. A process
// that may not read and write that file is not shown the GPU by CUDA.
func Devices(instance string) string { return filepath.Join(instance, "dev") }

// Proc is an instance's stand-in for /proc: what the driver tells there of capabilities, which are needed to use instances
// of a GPU in MIG mode. Their nodes are below [Devices].
func Proc(instance string) string { return filepath.Join(instance, "proc") }

// Shared lists the files of an instance that the driver's processes share, in
// the order of their names within each kind. They are all that a container
// needs. An instance that lacks one cannot be used any more.
func Shared(instance string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(instance, "memory-*"))
	if err != nil {
		return nil, fmt.Errorf("look for the simulated machine's files: %w", err)
	}
	slices.Sort(files)
	for _, name := range []string{"state", "exports"} {
		path := filepath.Join(instance, name)
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("look for the simulated machine's files: %w: start it again with `divvy simgpu start`", err)
		}
		files = append(files, path)
	}
	return files, nil
}
