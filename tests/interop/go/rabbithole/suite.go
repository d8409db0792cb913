// Package rabbithole makes rabbit-hole, a client of RabbitMQ's management API, and the modules that its own tests import
// dependencies of this module, so that `make go` can compile these tests.
package rabbithole

import _ "github.com/michaelklishin/rabbit-hole/v3"
