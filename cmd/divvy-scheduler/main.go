// Command divvy-scheduler is the scheduler of Kubernetes, which places pods with claims for Divvy's devices as Divvy does.
package main

import (
	"os"

	"github.com/divvy-gpu/divvy/cmd/divvy-scheduler/program"
)

func main() {
	os.Exit(program.Main(os.Args[1:], nil))
}
