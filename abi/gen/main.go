// Command gen writes the files that are derived from the descriptions in abi/.
// It runs in the repository's root.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/divvy-gpu/divvy/abi"
)

func main() {
	check := flag.Bool("check", false, "write nothing; fail when a file is out of date")
	flag.Parse()
	if err := abi.Generate(".", *check, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
