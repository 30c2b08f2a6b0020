// Mig measures how well instances of MIG are placed.
package main

import "fmt"

func main() {
	for seed := range uint64(openSeeds) {
		fmt.Println(seed+firstSeed, drawn(seed+firstSeed).weights)
	}
}
