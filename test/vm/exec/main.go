// For `go test -exec`: runs a package's tests in a guest of its own, and ends as they do.
//
//	exec [-shape NAME] [-append WORDS] [-with PATH]... [-console FILE] TESTS [ARGUMENT]...
//
// The guest has the package's testdata, and what -with names of the source tree, at the same places below /source.
// Without a kit nothing is run: it says of each test that it is skipped, or fails where DIVVY_REQUIRE names vm.
package main

import "os"

func main() {
	os.Exit(run(os.Args[1:]))
}
