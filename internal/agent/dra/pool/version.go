package pool

import (
	"fmt"
	"strconv"
	"strings"
)

// Semver writes a driver's version as the API wants versions: three numbers without leading zeros, so that 535.104.05
// becomes 535.104.5 and 550.54 becomes 550.54.0. What follows the numbers is left out; "" stands for a text that does
// not begin with a number.
func Semver(version string) string {
	fields := strings.SplitN(version, ".", 4)
	numbers := [3]string{"0", "0", "0"}
	for i, field := range fields {
		end := strings.IndexFunc(field, func(r rune) bool { return r < '0' || r > '9' })
		digits := field
		if end >= 0 {
			digits = field[:end]
		}
		n, err := strconv.ParseUint(digits, 10, 32)
		if err != nil && i == 0 {
			return ""
		}
		if err != nil || i == len(numbers) {
			break
		}
		numbers[i] = strconv.FormatUint(n, 10)
		if end >= 0 {
			break
		}
	}
	return strings.Join(numbers[:], ".")
}

// CUDASemver writes the driver's number of a version of CUDA in the same way, such as 12040 as 12.4.0; "" stands for none.
func CUDASemver(version int) string {
	if version <= 0 {
		return ""
	}
	return fmt.Sprintf("%d.%d.0", version/1000, version%1000/10)
}
