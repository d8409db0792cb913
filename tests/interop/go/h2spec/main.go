// Runs h2spec, the conformance tests for HTTP/2, against a server: `h2spec PORT REPORT` writes a report in the form of
// JUnit to a file, and exits with status 0 whether or not cases have failed.
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/summerwind/h2spec"
	"github.com/summerwind/h2spec/config"
)

func main() {
	port, err := strconv.Atoi(os.Args[1])
	if err == nil {
		_, err = h2spec.Run(&config.Config{
			Host:         "127.0.0.1",
			Port:         port,
			Path:         "/",
			Timeout:      2 * time.Second,
			MaxHeaderLen: 4000,
			Strict:       true,
			JUnitReport:  os.Args[2],
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
