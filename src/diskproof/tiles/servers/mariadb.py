"""MariaDB with a small shop in it, made for a guest of little memory. Nothing about durability is
changed: a commit is flushed (innodb_flush_log_at_trx_commit is 1)."""

from diskproof.tiles.roles import MOUNT_POINT

ACCOUNT = "mysql"
DATA = f"{MOUNT_POINT}/mysql"
SOCKET = "/run/mysqld/mysqld.sock"
CONFIG_FILE = "/run/my.cnf"
DATABASE = "shop"
SHOP_USER = "www-data"
ITEMS = 1000
CATEGORIES = 25
_SQL = "/usr/share/mysql"

# Reached by its socket only. The caches are what a small database needs.
CONFIG = f"""[mariadbd]
user = {ACCOUNT}
datadir = {DATA}
socket = {SOCKET}
pid-file = /run/mysqld/mysqld.pid
log-error = {DATA}/error.log
tmpdir = /tmp
skip-networking
skip-name-resolve
max_connections = 16
performance_schema = off
innodb_buffer_pool_size = 16M
innodb_log_file_size = 16M
innodb_log_buffer_size = 2M
key_buffer_size = 1M
aria_pagecache_buffer_size = 1M
"""

# The server at its birth takes one statement a line. PHP comes as the account that it runs as.
SHOP = f"""FLUSH PRIVILEGES;
CREATE USER '{SHOP_USER}'@'localhost' IDENTIFIED VIA unix_socket;
GRANT SELECT ON {DATABASE}.* TO '{SHOP_USER}'@'localhost';
CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4;
USE {DATABASE};
CREATE TABLE items (id INT PRIMARY KEY, category INT NOT NULL, name VARCHAR(40) NOT NULL, \
price INT NOT NULL, stock INT NOT NULL, KEY (category)) ENGINE=InnoDB;
INSERT INTO items SELECT seq, seq % {CATEGORIES}, CONCAT('Item ', seq), (seq * 37) % 1000, \
seq % 13 FROM seq_1_to_{ITEMS};
"""

START = f"""install -d -o {ACCOUNT} -g {ACCOUNT} {DATA} /run/mysqld
{{
    echo 'CREATE DATABASE mysql;'
    echo 'USE mysql;'
    cat {_SQL}/mysql_system_tables.sql {_SQL}/mysql_system_tables_data.sql /run/shop.sql
}} | mariadbd --defaults-file={CONFIG_FILE} --bootstrap >/run/mysqld/bootstrap.log 2>&1 \\
  || {{ tail -n 5 {DATA}/error.log /run/mysqld/bootstrap.log >&2; exit 1; }}
mariadbd --defaults-file={CONFIG_FILE} </dev/null >/run/mysqld/output.log 2>&1 &
server=$!
ask() {{ mariadb -N -S {SOCKET} {DATABASE} -e 'SELECT COUNT(*) FROM items' 2>&1; }}
until found=$(ask); do
    kill -0 $server 2>/dev/null || {{ tail -n 5 {DATA}/error.log >&2; exit 1; }}
    sleep 0.1
done
[ "$found" = {ITEMS} ]
"""
FILES = {CONFIG_FILE: CONFIG.encode(), "/run/shop.sql": SHOP.encode()}


def items_of(category: int, count: int) -> tuple[tuple[int, str, int, int], ...]:
    """The dearest items of a category: number, name, price, stock."""
    items = [
        (number, f"Item {number}", number * 37 % 1000, number % 13)
        for number in range(1, ITEMS + 1)
        if number % CATEGORIES == category
    ]
    return tuple(sorted(items, key=lambda item: (-item[2], item[0]))[:count])
