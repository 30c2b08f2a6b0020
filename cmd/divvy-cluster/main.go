// Command divvy-cluster is what divvy becomes to serve a Kubernetes cluster.
package main

import (
	"os"

	"github.com/divvy-gpu/divvy/internal/cli/cluster"
)

func main() {
	os.Exit(cluster.Main(os.Args[1:], cluster.Hooks{}, os.Stdout, os.Stderr))
}
