// Package web tests the web pages in a real browser: what a person with a keyboard or a screen reader finds, what the script
// does, and that nothing violates the pages' policy. It is a module of its own, so that what drives a browser is no
// dependency of the programs.
package web
