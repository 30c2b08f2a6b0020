// Package shipped looks into the programs and libraries that are shipped: for what only tests use, and for what they
// need of the C library.
package shipped
