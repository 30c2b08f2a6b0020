// Package containers runs the examples of docs/containers.md with Debian's podman, Docker, Slurm and Open MPI and with Jupyter, in
// namespaces of their own on a simulated machine, and compares what they print. Scripts in hack unpack these programs.
package containers
