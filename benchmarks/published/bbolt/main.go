// Command bolt writes to a database of bbolt in the folder it is started in, or checks what is there.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
)

const keys = 3

var bucket = []byte("keys")

func main() {
	work := map[string]func(*bolt.DB) error{"write": write, "check": check}[os.Args[1]]
	// A lock that a crash left is nobody's.
	database, err := bolt.Open("db", 0o600, &bolt.Options{Timeout: time.Second})
	if err == nil {
		err = work(database)
	}
	if err != nil {
		fmt.Println(0, err)
		os.Exit(2)
	}
}

func write(database *bolt.DB) error {
	for number := 1; number <= keys; number++ {
		err := database.Update(func(change *bolt.Tx) error {
			found, err := change.CreateBucketIfNotExists(bucket)
			if err != nil {
				return err
			}
			return found.Put(fmt.Appendf(nil, "%d", number), []byte(strings.Repeat("value ", 200)))
		})
		if err != nil {
			return err
		}
		fmt.Println(number)
	}
	return nil
}

// check looks for each key that was promised.
func check(database *bolt.DB) error {
	promises, err := os.Open(os.Getenv("DISKPROOF_ACKNOWLEDGED"))
	if err != nil {
		return err
	}
	lost := 0
	err = database.View(func(view *bolt.Tx) error {
		for problem := range view.Check() {
			return problem
		}
		lines := bufio.NewScanner(promises)
		for lines.Scan() {
			found := view.Bucket(bucket)
			if found == nil || found.Get(lines.Bytes()) == nil {
				lost++
			}
		}
		return lines.Err()
	})
	if err == nil && lost > 0 {
		fmt.Println(lost)
		os.Exit(1)
	}
	return err
}
