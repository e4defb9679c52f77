"""nginx and PHP: one page, made anew for each request from what the database says."""

from diskproof.tiles.roles import MOUNT_POINT
from diskproof.tiles.servers import mariadb

ACCOUNT = "www-data"
FOLDER = f"{MOUNT_POINT}/web"
ACCESS_LOG = f"{FOLDER}/access.log"
CATEGORY = 7
ROWS = 20
_SOCKET = "/run/php.sock"

NGINX = f"""user {ACCOUNT};
worker_processes 1;
pid /run/nginx.pid;
error_log {FOLDER}/error.log;
events {{}}
http {{
    default_type text/html;
    access_log {ACCESS_LOG};
    client_body_temp_path {FOLDER}/tmp/body;
    proxy_temp_path {FOLDER}/tmp/proxy;
    fastcgi_temp_path {FOLDER}/tmp/fastcgi;
    uwsgi_temp_path {FOLDER}/tmp/uwsgi;
    scgi_temp_path {FOLDER}/tmp/scgi;
    server {{
        listen 80;
        location / {{
            include /etc/nginx/fastcgi_params;
            fastcgi_param SCRIPT_FILENAME {FOLDER}/html/index.php;
            fastcgi_pass unix:{_SOCKET};
        }}
    }}
}}
"""

# As many workers as the load has clients: none is started while it is measured.
PHP = f"""[global]
pid = /run/php.pid
error_log = {FOLDER}/php.log
[www]
user = {ACCOUNT}
group = {ACCOUNT}
listen = {_SOCKET}
listen.owner = {ACCOUNT}
pm = static
pm.max_children = 4
php_admin_value[date.timezone] = UTC
"""

PAGE = f"""<?php
mysqli_report(MYSQLI_REPORT_ERROR | MYSQLI_REPORT_STRICT);
$shop = new mysqli('localhost', '{mariadb.SHOP_USER}', '', '{mariadb.DATABASE}', 0,
    '{mariadb.SOCKET}');
$ask = $shop->prepare('SELECT id, name, price, stock FROM items WHERE category = ?'
    . ' ORDER BY price DESC, id LIMIT {ROWS}');
$category = {CATEGORY};
$ask->bind_param('i', $category);
$ask->execute();
echo "<!DOCTYPE html>\\n<title>Shop</title>\\n<table>\\n";
foreach ($ask->get_result() as $row) {{
    $cells = array_map('htmlspecialchars', array_map('strval', $row));
    echo '<tr><td>' . implode('<td>', $cells) . "\\n";
}}
echo "</table>\\n";
"""

START = f"""install -d -o {ACCOUNT} -g {ACCOUNT} {FOLDER} {FOLDER}/html {FOLDER}/tmp
cp /run/index.php {FOLDER}/html/index.php
php-fpm --fpm-config /run/php-fpm.conf --daemonize </dev/null >/run/php.out 2>&1 \\
  || {{ tail -n 5 /run/php.out {FOLDER}/php.log >&2; exit 1; }}
nginx -e {FOLDER}/error.log -c /run/nginx.conf </dev/null >/run/nginx.out 2>&1 \\
  || {{ tail -n 5 /run/nginx.out >&2; exit 1; }}
ab -q -n 1 "http://$SELF/probe" >/run/probe.out 2>&1
awk '/^Complete requests: *1$/ {{ good = 1 }} /^Non-2xx responses/ {{ bad = 1 }}
  END {{ exit !good || bad }}' /run/probe.out || {{ tail -n 5 {FOLDER}/*.log >&2; exit 1; }}
"""
FILES = {
    "/run/nginx.conf": NGINX.encode(),
    "/run/php-fpm.conf": PHP.encode(),
    "/run/index.php": PAGE.encode(),
}


def render_page() -> str:
    """What the page must say."""
    rows = [f"<tr><td>{'<td>'.join(map(str, item))}\n" for item in mariadb.items_of(CATEGORY, ROWS)]
    return f"<!DOCTYPE html>\n<title>Shop</title>\n<table>\n{''.join(rows)}</table>\n"
