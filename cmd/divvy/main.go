// Command divvy divides NVIDIA GPUs among containers and processes.
package main

import (
	"os"

	"github.com/divvy-gpu/divvy/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr))
}
